/*
 * The lock of ZooKeeper's own recipe in C (zkr_lock), under the orders of tests/clients/interop (locks/README.md).
 * One lock, because the recipe can crash: the first order takes it, the next line gives it away.
 */
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <zookeeper.h>
#include <zoo_lock.h>

static sem_t connected;
static char id[32];

static void on_session(zhandle_t *client, int type, int state, const char *path, void *context) {
    if (type == ZOO_SESSION_EVENT && state == ZOO_CONNECTED_STATE) sem_post(&connected);
}

static void on_lock(int code, void *context) {
    printf("%s %s \n", code == 0 ? "GOT" : "FREED", id);
    fflush(stdout);
}

int main(int count, char **arguments) {
    char path[512], line[64];
    zkr_lock_mutex_t mutex;
    if (count != 2) return 64;
    sem_init(&connected, 0, 0);
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    zhandle_t *client = zookeeper_init(arguments[1], on_session, 30000, NULL, NULL, 0);
    if (!client || sem_wait(&connected)) return 1;
    puts("READY"), fflush(stdout);
    if (scanf("take %31s %*s %*s %511s", id, path) != 2) return 64;
    zkr_lock_init_cb(&mutex, client, path, &ZOO_OPEN_ACL_UNSAFE, on_lock, NULL);
    zkr_lock_lock(&mutex);
    if (!mutex.id) printf("ERROR %s it has no znode\n", id), fflush(stdout);
    if (!fgets(line, sizeof line, stdin) || !fgets(line, sizeof line, stdin)) return 0;
    zkr_lock_unlock(&mutex);
    return zookeeper_close(client) != ZOK;
}
