/*
 * ZooKeeper's multi-threaded C client, under the orders of README.md beside this file. Its library is built with OpenSSL and
 * Cyrus SASL, and does not take both at once (ZOOKEEPER-3482).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper.h>

/* The client asks for it, and OpenSSL 3 has it no more. */
int FIPS_mode(void) { return 0; }

static volatile int state_seen;

static void on_event(zhandle_t *handle, int type, int state, const char *path, void *context) {
    (void)handle; (void)path; (void)context;
    if (type == ZOO_SESSION_EVENT) state_seen = state;
}

static const char *word(int count, char **words, const char *name) {
    size_t length = strlen(name);
    for (int i = 1; i < count; i++)
        if (!strncmp(words[i], name, length) && words[i][length] == '=') return words[i] + length + 1;
    return NULL;
}

static zhandle_t *client(int count, char **words) {
    const char *address = word(count, words, "address"), *ca = word(count, words, "ca"), *user = word(count, words, "user");
    if (ca) {
        char certificates[2048];
        snprintf(certificates, sizeof certificates, "%s,%s,%s", ca, word(count, words, "certificate"), word(count, words, "key"));
        return zookeeper_init_ssl(address, certificates, on_event, 10000, NULL, NULL, 0);
    }
    if (!user) return zookeeper_init(address, on_event, 10000, NULL, NULL, 0);
    if (sasl_client_init(NULL) != SASL_OK) return NULL;
    zoo_sasl_params_t sasl = { "zookeeper", "zk-sasl-md5", "DIGEST-MD5",
                               zoo_sasl_make_basic_callbacks(user, NULL, word(count, words, "password_file")) };
    return zookeeper_init_sasl(address, on_event, 10000, NULL, NULL, 0, NULL, &sasl);
}

/* One order; again as long as the connection is lost. */
static int obey(zhandle_t *zk, const char *order, char *answer, int size) {
    char verb[16], path[256], scheme[32], id[256];
    int words = sscanf(order, "%15s %255s %31s %255s", verb, path, scheme, id);
    for (;;) {
        int rc;
        if (words == 4 && !strcmp(verb, "create")) {
            struct ACL one = { ZOO_PERM_ALL, { scheme, id } };
            struct ACL_vector all = { 1, &one };
            rc = zoo_create(zk, path, "kept", 4, &all, 0, NULL, 0);
            snprintf(answer, size, "CREATED");
        } else {
            int length = size - 6;
            rc = zoo_get(zk, path, 0, answer + 5, &length, NULL);
            memcpy(answer, "DATA ", 5);
            answer[5 + (length > 0 ? length : 0)] = 0;
        }
        if (rc != ZCONNECTIONLOSS && rc != ZOPERATIONTIMEOUT) return rc;
        usleep(50000);
    }
}

int main(int count, char **words) {
    char order[1024], answer[1024];
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    setvbuf(stdout, NULL, _IOLBF, 0);
    zhandle_t *zk = client(count, words);
    for (int tries = 0; zk && tries < 600 && state_seen != ZOO_CONNECTED_STATE && state_seen != ZOO_AUTH_FAILED_STATE; tries++)
        usleep(10000);
    if (!zk || state_seen != ZOO_CONNECTED_STATE) {
        printf("REFUSED state %d\n", state_seen);
        return 1;
    }
    puts("READY");
    while (fgets(order, sizeof order, stdin)) {
        int rc = obey(zk, order, answer, sizeof answer);
        if (rc == ZOK) puts(answer);
        else if (rc == ZNOAUTH) puts("DENIED");
        else printf("ERROR %d %s\n", rc, zerror(rc));
    }
    zookeeper_close(zk);
    return 0;
}
