/*
 * Drives ZooKeeper's multi-threaded C client through its API.
 *   session HOST:PORT     runs the cases in order; one line each: PASS or FAIL, name, milliseconds, message;
 *                         exits with 1 if one failed
 *   session HOST:PORT --one-connection    only those that need no second connection
 *   session --list        prints their names
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

static const char *hosts;
static zhandle_t *zh;
static char wrong[256];

/* What the watchers saw: written by the client's thread, read by polling with a deadline. */
static volatile int connections, events, last_type;
static char last_path[256];

static void on_event(zhandle_t *handle, int type, int state, const char *path, void *context) {
    (void)handle; (void)context;
    if (type == ZOO_SESSION_EVENT) {
        if (state == ZOO_CONNECTED_STATE) connections++;
        return;
    }
    last_type = type;
    snprintf(last_path, sizeof last_path, "%s", path ? path : "");
    events++;
}

static long now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000L + t.tv_nsec / 1000000L;
}

static int reaches(volatile int *counter, int wanted) {
    for (long end = now_ms() + 8000; now_ms() < end; usleep(2000))
        if (*counter >= wanted) return 1;
    return 0;
}

#define EXPECT(condition) \
    do { if (!(condition)) { snprintf(wrong, sizeof wrong, "line %d: %s", __LINE__, #condition); return; } } while (0)
#define RC(code, call) \
    do { int rc_ = (call); \
         if (rc_ != (code)) { snprintf(wrong, sizeof wrong, "line %d: %s: %d", __LINE__, #call, rc_); return; } } while (0)
#define OPEN &ZOO_OPEN_ACL_UNSAFE

static int put(const char *path, int flags, char *name, int size) {
    return zoo_create(zh, path, "x", 1, OPEN, flags, name, size);
}

static void create_and_get(void) {
    char data[16], name[64];
    int size = sizeof data;
    struct Stat stat;
    RC(ZOK, zoo_create(zh, "/c", "one", 3, OPEN, 0, name, sizeof name));
    EXPECT(strcmp(name, "/c") == 0);
    RC(ZOK, zoo_get(zh, "/c", 0, data, &size, &stat));
    EXPECT(size == 3 && memcmp(data, "one", 3) == 0 && stat.version == 0 && stat.dataLength == 3);
}

static void null_data(void) {
    char data[16];
    int size = sizeof data;
    RC(ZOK, zoo_create(zh, "/c/null", NULL, -1, OPEN, 0, NULL, 0));
    RC(ZOK, zoo_get(zh, "/c/null", 0, data, &size, NULL));
    EXPECT(size == -1);
    RC(ZOK, zoo_delete(zh, "/c/null", 0));
}

static void create2_gives_the_stat(void) {
    char name[64];
    struct Stat stat;
    RC(ZOK, zoo_create2(zh, "/c/e", "x", 1, OPEN, ZOO_EPHEMERAL, name, sizeof name, &stat));
    EXPECT(stat.ephemeralOwner == zoo_client_id(zh)->client_id && stat.czxid == stat.pzxid);
}

static void sequential_names(void) {
    char first[64], second[64];
    RC(ZOK, put("/c/s-", ZOO_PERSISTENT_SEQUENTIAL, first, sizeof first));
    RC(ZOK, put("/c/s-", ZOO_EPHEMERAL_SEQUENTIAL, second, sizeof second));
    EXPECT(atoi(second + 5) == atoi(first + 5) + 1 && strlen(first) == 15);
}

static void container_and_ttl(void) {
    char name[64];
    struct Stat stat;
    RC(ZOK, put("/c/container", ZOO_CONTAINER, name, sizeof name));
    RC(ZOK, zoo_create2_ttl(zh, "/c/ttl", "x", 1, OPEN, ZOO_PERSISTENT_WITH_TTL, 600000, name, sizeof name, &stat));
    EXPECT(stat.dataLength == 1);
    RC(ZBADARGUMENTS, zoo_create_ttl(zh, "/c/bad", "x", 1, OPEN, ZOO_PERSISTENT_WITH_TTL, 0, name, sizeof name));
}

static void errors(void) {
    RC(ZNODEEXISTS, put("/c", 0, NULL, 0));
    RC(ZNONODE, put("/none/x", 0, NULL, 0));
    RC(ZNOCHILDRENFOREPHEMERALS, put("/c/e/x", 0, NULL, 0));
    RC(ZNONODE, zoo_delete(zh, "/none", -1));
    RC(ZNOTEMPTY, zoo_delete(zh, "/c", -1));
    RC(ZBADVERSION, zoo_set(zh, "/c", "x", 1, 7));
    RC(ZBADVERSION, zoo_delete(zh, "/c/container", 7));
    RC(ZNONODE, zoo_exists(zh, "/none", 0, NULL));
}

static void set2_gives_the_stat(void) {
    struct Stat stat;
    RC(ZOK, zoo_set2(zh, "/c", "two", 3, 0, &stat));
    EXPECT(stat.version == 1 && stat.mzxid > stat.czxid);
}

static void children(void) {
    struct String_vector names;
    struct Stat stat;
    RC(ZOK, zoo_get_children2(zh, "/c", 0, &names, &stat));
    EXPECT(names.count == stat.numChildren && names.count == 5);
    deallocate_String_vector(&names);
    RC(ZOK, zoo_get_children(zh, "/c/e", 0, &names));
    EXPECT(names.count == 0);
}

static void data_watch(void) {
    char data[16];
    int size = sizeof data, before = events;
    RC(ZOK, zoo_wget(zh, "/c", on_event, NULL, data, &size, NULL));
    RC(ZOK, zoo_set(zh, "/c", "w", 1, -1));
    EXPECT(reaches(&events, before + 1) && last_type == ZOO_CHANGED_EVENT && strcmp(last_path, "/c") == 0);
}

static void exists_watch(void) {
    int before = events;
    RC(ZNONODE, zoo_wexists(zh, "/c/later", on_event, NULL, NULL));
    RC(ZOK, put("/c/later", 0, NULL, 0));
    EXPECT(reaches(&events, before + 1) && last_type == ZOO_CREATED_EVENT);
    RC(ZOK, zoo_wexists(zh, "/c/later", on_event, NULL, NULL));
    RC(ZOK, zoo_delete(zh, "/c/later", -1));
    EXPECT(reaches(&events, before + 2) && last_type == ZOO_DELETED_EVENT);
}

static void child_watch(void) {
    struct String_vector names;
    int before = events;
    RC(ZOK, zoo_wget_children(zh, "/c", on_event, NULL, &names));
    deallocate_String_vector(&names);
    RC(ZOK, put("/c/child", 0, NULL, 0));
    EXPECT(reaches(&events, before + 1) && last_type == ZOO_CHILD_EVENT);
}

static void remove_watches(void) {
    char data[16];
    int size = sizeof data;
    RC(ZOK, zoo_wget(zh, "/c/child", on_event, NULL, data, &size, NULL));
    RC(ZOK, zoo_remove_watches(zh, "/c/child", ZWATCHTYPE_DATA, on_event, NULL, 0));
    RC(ZNOWATCHER, zoo_remove_watches(zh, "/c/child", ZWATCHTYPE_DATA, on_event, NULL, 0));
}

static void multi_commits(void) {
    char name[64];
    struct Stat stat;
    zoo_op_t ops[4];
    zoo_op_result_t results[4];
    zoo_create_op_init(&ops[0], "/c/m", "m", 1, OPEN, 0, name, sizeof name);
    zoo_set_op_init(&ops[1], "/c/m", "n", 1, 0, &stat);
    zoo_check_op_init(&ops[2], "/c/m", 1);
    zoo_delete_op_init(&ops[3], "/c/m", 1);
    RC(ZOK, zoo_multi(zh, 4, ops, results));
    EXPECT(stat.version == 1 && strcmp(name, "/c/m") == 0);
}

static void multi_rolls_back(void) {
    zoo_op_t ops[3];
    zoo_op_result_t results[3];
    zoo_create_op_init(&ops[0], "/c/u", "m", 1, OPEN, 0, NULL, 0);
    zoo_check_op_init(&ops[1], "/c", 99);
    zoo_delete_op_init(&ops[2], "/c/child", -1);
    RC(ZBADVERSION, zoo_multi(zh, 3, ops, results));
    EXPECT(results[0].err == ZOK && results[1].err == ZBADVERSION && results[2].err == ZRUNTIMEINCONSISTENCY);
    RC(ZNONODE, zoo_exists(zh, "/c/u", 0, NULL));
}

static volatile int completions, completion_rc;
static void completed(int rc, const void *data) { (void)data; completion_rc = rc; completions++; }
static void completed_string(int rc, const char *value, const void *data) { (void)value; completed(rc, data); }

static void sync_completes(void) {
    int before = completions;
    RC(ZOK, zoo_async(zh, "/c", completed_string, NULL));
    EXPECT(reaches(&completions, before + 1) && completion_rc == ZOK);
}

static void auth_and_acl(void) {
    int before = completions;
    struct ACL_vector acl;
    struct Stat stat;
    RC(ZINVALIDACL, zoo_create(zh, "/c/acl", "x", 1, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0));
    RC(ZOK, zoo_add_auth(zh, "digest", "bob:pw", 6, completed, NULL));
    EXPECT(reaches(&completions, before + 1) && completion_rc == ZOK);
    RC(ZOK, zoo_create(zh, "/c/acl", "x", 1, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0));
    RC(ZOK, zoo_get_acl(zh, "/c/acl", &acl, &stat));
    EXPECT(acl.count == 1 && strcmp(acl.data[0].id.scheme, "digest") == 0 && acl.data[0].perms == ZOO_PERM_ALL);
    deallocate_ACL_vector(&acl);
    RC(ZBADVERSION, zoo_set_acl(zh, "/c/acl", 5, &ZOO_READ_ACL_UNSAFE));
    RC(ZOK, zoo_set_acl(zh, "/c/acl", 0, &ZOO_READ_ACL_UNSAFE));
    RC(ZNOAUTH, zoo_set(zh, "/c/acl", "y", 1, -1));
}

static void timeout_is_negotiated(void) { EXPECT(zoo_recv_timeout(zh) == 10000); }

/* An `exists` of /drop makes a recording proxy end the connection; without one nothing happens. */
static void drop_mark(void) {
    char data[16];
    int size = sizeof data;
    RC(ZOK, zoo_wget(zh, "/c", on_event, NULL, data, &size, NULL));
    zoo_exists(zh, "/drop", 0, NULL);
    for (long end = now_ms() + 8000; now_ms() < end; usleep(20000)) {
        size = sizeof data;
        if (zoo_get(zh, "/c/e", 0, data, &size, NULL) == ZOK) return;
    }
    snprintf(wrong, sizeof wrong, "the session did not come back");
}

static int settles(zhandle_t *handle) {
    for (long end = now_ms() + 8000; now_ms() < end; usleep(5000))
        if (zoo_state(handle) == ZOO_CONNECTED_STATE || is_unrecoverable(handle)) return 1;
    return 0;
}

/* Both handles want the session and take it from each other in turn, so this asks until an answer comes. */
static void session_is_taken_up_by_another_handle(void) {
    struct Stat stat;
    clientid_t id = *zoo_client_id(zh);
    zhandle_t *second = zookeeper_init(hosts, on_event, 10000, &id, NULL, 0);
    EXPECT(second);
    int rc = ZCONNECTIONLOSS;
    for (long end = now_ms() + 8000; now_ms() < end && rc != ZOK; usleep(1000)) rc = zoo_exists(second, "/c/e", 0, &stat);
    int same = zoo_client_id(second)->client_id == id.client_id;
    zookeeper_close(second);
    EXPECT(rc == ZOK && same && stat.ephemeralOwner == id.client_id);
    EXPECT(settles(zh));
}

static void unknown_session_is_expired(void) {
    clientid_t id = {0x123456789abcdefLL, "not the password"};
    zhandle_t *other = zookeeper_init(hosts, on_event, 10000, &id, NULL, 0);
    EXPECT(other && settles(other));
    int state = zoo_state(other);
    zookeeper_close(other);
    EXPECT(state == ZOO_EXPIRED_SESSION_STATE);
}

static int opens_a_session(void) {
    int before = connections;
    zh = zookeeper_init(hosts, on_event, 10000, NULL, NULL, 0);
    return zh && reaches(&connections, before + 1);
}

/* The client sends a close only while it is connected, and waits for the answer for as long as this at most. */
enum { CLOSE_WAIT_MS = 1500 };

static void ephemerals_end_with_the_session(void) {
    /* Two handles shared the first session: one has closed it, or neither was connected and it lives on until it times
     * out. So this closes a session that one handle has for itself, and tidies up what may be left of the other. */
    zookeeper_close(zh);
    EXPECT(opens_a_session());
    int left = zoo_delete(zh, "/c/e", -1);
    EXPECT(left == ZOK || left == ZNONODE);
    RC(ZOK, put("/c/own", ZOO_EPHEMERAL, NULL, 0));
    long start = now_ms();
    int closed = zookeeper_close(zh), answered = now_ms() - start < CLOSE_WAIT_MS;
    EXPECT(opens_a_session());
    EXPECT(closed == ZOK);
    /* Without the answer the close may still be on its way; its deadline is before the session's timeout. */
    int rc = zoo_exists(zh, "/c/own", 0, NULL);
    for (long end = now_ms() + 8000; rc == ZOK && !answered && now_ms() < end; usleep(1000))
        rc = zoo_exists(zh, "/c/own", 0, NULL);
    EXPECT(rc == ZNONODE);
    RC(ZOK, zoo_exists(zh, "/c/child", 0, NULL));
}

static void delete_all(void) {
    struct String_vector names;
    char path[256];
    RC(ZOK, zoo_get_children(zh, "/c", 0, &names));
    for (int i = 0; i < names.count; i++) {
        snprintf(path, sizeof path, "/c/%s", names.data[i]);
        RC(ZOK, zoo_delete(zh, path, -1));
    }
    deallocate_String_vector(&names);
    RC(ZOK, zoo_delete(zh, "/c", -1));
}

/* The last field: the case opens further connections, which would disturb a recording of this one. */
static const struct { const char *name; void (*run)(void); int more_connections; } cases[] = {
    {"create and get", create_and_get, 0},
    {"null data", null_data, 0},
    {"create2 gives the stat", create2_gives_the_stat, 0},
    {"sequential names", sequential_names, 0},
    {"container and time to live", container_and_ttl, 0},
    {"errors", errors, 0},
    {"set2 gives the stat", set2_gives_the_stat, 0},
    {"children", children, 0},
    {"data watch", data_watch, 0},
    {"exists watch", exists_watch, 0},
    {"child watch", child_watch, 0},
    {"remove watches", remove_watches, 0},
    {"multi commits", multi_commits, 0},
    {"multi rolls back", multi_rolls_back, 0},
    {"sync completes", sync_completes, 0},
    {"auth and acl", auth_and_acl, 0},
    {"timeout is negotiated", timeout_is_negotiated, 0},
    {"session survives a lost connection", drop_mark, 0},
    {"session is taken up by another handle", session_is_taken_up_by_another_handle, 1},
    {"unknown session is expired", unknown_session_is_expired, 1},
    {"ephemerals end with the session", ephemerals_end_with_the_session, 1},
    {"delete all", delete_all, 0},
};

int main(int count, char **arguments) {
    if (count != 2 && count != 3) return 64;
    int one_connection = count == 3 && strcmp(arguments[2], "--one-connection") == 0;
    int failed = 0;
    size_t total = sizeof cases / sizeof cases[0];
    if (strcmp(arguments[1], "--list") == 0) {
        for (size_t i = 0; i < total; i++) puts(cases[i].name);
        return 0;
    }
    hosts = arguments[1];
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    zh = zookeeper_init(hosts, on_event, 10000, NULL, NULL, 0);
    if (!zh || !reaches(&connections, 1)) {
        fprintf(stderr, "no connection to %s\n", hosts);
        return 69;
    }
    for (size_t i = 0; i < total; i++) {
        if (one_connection && cases[i].more_connections) continue;
        long start = now_ms();
        wrong[0] = 0;
        cases[i].run();
        if (wrong[0]) failed = 1;
        printf("%s\t%s\t%ld\t%s\n", wrong[0] ? "FAIL" : "PASS", cases[i].name, now_ms() - start, wrong);
        fflush(stdout);
    }
    zookeeper_close(zh);
    return failed;
}
