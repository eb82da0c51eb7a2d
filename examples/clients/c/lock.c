/*
 * The same lock with ZooKeeper's C client (Debian: libzookeeper-mt-dev). Enter gives it away.
 *
 *   cc -Wall -DTHREADED -o /tmp/lock examples/clients/c/lock.c -lzookeeper_mt
 *   /tmp/lock 127.0.0.1:2181 /locks/demo
 */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

static sem_t connected, changed;
static volatile int held;

static void check(int code, const char *what) {
    if (code == ZOK) return;
    fprintf(stderr, "%s: %s\n", what, zerror(code));
    exit(1);
}

static void on_session(zhandle_t *client, int type, int state, const char *path, void *context) {
    if (state == ZOO_CONNECTED_STATE) sem_post(&connected);
    else if (held) _exit(75); /* perhaps nobody else has it yet: stop now */
}

static void on_change(zhandle_t *client, int type, int state, const char *path, void *context) {
    if (type != ZOO_SESSION_EVENT) sem_post(&changed);
}

static long number(const char *name) { return atol(name + strlen(name) - 10); }

/* Writes the path of the nearest before us; 0 if it is our turn. */
static int before(zhandle_t *client, const char *dir, const char *own, char *nearest, size_t size) {
    struct String_vector names;
    long highest = -1;
    check(zoo_get_children(client, dir, 0, &names), dir);
    for (int i = 0; i < names.count; i++) {
        if (number(names.data[i]) >= number(own) || number(names.data[i]) <= highest) continue;
        highest = number(names.data[i]);
        snprintf(nearest, size, "%s/%s", dir, names.data[i]);
    }
    deallocate_String_vector(&names);
    return highest >= 0;
}

int main(int count, char **arguments) {
    if (count != 3) return fprintf(stderr, "usage: lock HOST:PORT,... PATH\n"), 64;
    char *dir = arguments[2], own[512], name[600], uuid[37] = "", byte;
    struct Stat stat;
    FILE *random = fopen("/proc/sys/kernel/random/uuid", "r");
    if (!random || fscanf(random, "%36s", uuid) != 1) return perror("uuid"), 1;
    sem_init(&connected, 0, 0), sem_init(&changed, 0, 0), zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    zhandle_t *client = zookeeper_init(arguments[1], on_session, 10000, NULL, NULL, 0);
    if (!client || sem_wait(&connected)) return perror("zookeeper_init"), 1;
    for (char *end = strchr(dir + 1, '/'); ; end = strchr(end + 1, '/')) {
        snprintf(name, sizeof name, "%.*s", (int)(end ? end - dir : (long)strlen(dir)), dir);
        int code = zoo_create(client, name, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
        check(code == ZNODEEXISTS ? ZOK : code, name);
        if (!end) break;
    }
    snprintf(name, sizeof name, "%s/_c_%s-lock-", dir, uuid); /* Curator's names */
    /* If the connection is lost here we end, and with us the session and the znode. */
    check(zoo_create(client, name, NULL, -1, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL | ZOO_SEQUENCE, own, sizeof own), name);
    while (before(client, dir, own, name, sizeof name)) {
        int code = zoo_wget(client, name, on_change, NULL, &byte, &(int){sizeof byte}, NULL);
        if (code == ZOK) sem_wait(&changed);
        else check(code == ZNONODE ? ZOK : code, name);
    }
    held = 1;
    check(zoo_exists(client, own, 0, &stat), own); /* its czxid is the fencing token */
    printf("HELD %s %lld\n", own, (long long)stat.czxid), fflush(stdout);
    if (read(0, &byte, 1) < 0) perror("read");
    check(zoo_delete(client, own, -1), own);
    held = 0;
    printf("RELEASED %s %lld\n", own, (long long)stat.czxid), fflush(stdout);
    return zookeeper_close(client) != ZOK;
}
