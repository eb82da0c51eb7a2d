// Drives Apache Curator, its recipes first: java -cp JARS:CLASSES Recipes HOST:PORT, or --list.
// Prints one line per case: PASS or FAIL, name, milliseconds, message. The last cases need a crash of the server: the
// program prints RESTART and waits for a line that says that the server was killed and started again.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.transaction.CuratorTransactionResult;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.nodes.PersistentNode;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

public class Recipes {
    static final int SESSION_MS = 30000;
    static final long CASE_SECONDS = 60;
    static final Map<String, Case> CASES = new LinkedHashMap<>();
    static final List<CuratorFramework> OPEN = new CopyOnWriteArrayList<>();
    static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));
    static String hosts;

    interface Case {
        void run() throws Exception;
    }

    static void znodes() {
        CASES.put("znodes: create with parents, read, change, delete", () -> {
            CuratorFramework client = open();
            check("/z/a/b".equals(client.create().creatingParentsIfNeeded().forPath("/z/a/b", bytes("one"))), "path");
            Stat stat = new Stat();
            check(text(client.getData().storingStatIn(stat).forPath("/z/a/b")).equals("one"), "data");
            check(client.setData().withVersion(stat.getVersion()).forPath("/z/a/b", bytes("two")).getVersion() == 1, "version");
            refused(KeeperException.Code.BADVERSION, () -> client.setData().withVersion(0).forPath("/z/a/b"));
            refused(KeeperException.Code.NOTEMPTY, () -> client.delete().forPath("/z/a"));
            client.delete().guaranteed().deletingChildrenIfNeeded().forPath("/z");
            check(client.checkExists().forPath("/z") == null, "still there");
        });
        CASES.put("znodes: protected sequential, container, time to live", () -> {
            CuratorFramework client = open();
            client.create().creatingParentContainersIfNeeded().forPath("/c/d/e");
            String first = client.create().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath("/c/d/p-");
            String second = client.create().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath("/c/d/p-");
            check(first.endsWith("p-0000000001") && second.endsWith("p-0000000002"), first + " " + second);
            client.create().withTtl(600000).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath("/c/d/t");
            check(client.getChildren().forPath("/c/d").size() == 4, "children");
        });
        CASES.put("znodes: in the background, sync, namespace", () -> {
            CuratorFramework client = open();
            CountDownLatch done = new CountDownLatch(2);
            client.create().creatingParentsIfNeeded()
                .inBackground((c, event) -> { if (event.getResultCode() == 0) done.countDown(); }).forPath("/space/b");
            client.sync().inBackground((c, event) -> { if (event.getResultCode() == 0) done.countDown(); }).forPath("/space");
            await(done, "callbacks");
            check(client.usingNamespace("space").checkExists().forPath("/b") != null, "namespace");
        });
        CASES.put("znodes: digest authentication guards them", () -> {
            CuratorFramework owner = CuratorFrameworkFactory.builder().connectString(hosts).sessionTimeoutMs(SESSION_MS)
                .retryPolicy(new RetryNTimes(60, 250)).authorization("digest", bytes("bob:pw")).build();
            start(owner);
            owner.create().withACL(ZooDefs.Ids.CREATOR_ALL_ACL).forPath("/guarded", bytes("x"));
            check(text(owner.getData().forPath("/guarded")).equals("x"), "owner");
            refused(KeeperException.Code.NOAUTH, () -> open().getData().forPath("/guarded"));
        });
        CASES.put("transaction: commits as one", () -> {
            CuratorFramework client = open();
            List<CuratorTransactionResult> results = client.transaction().forOperations(
                client.transactionOp().create().forPath("/tx", bytes("1")),
                client.transactionOp().check().withVersion(0).forPath("/tx"),
                client.transactionOp().setData().forPath("/tx", bytes("2")),
                client.transactionOp().create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath("/tx/s-"));
            check(results.get(3).getResultPath().equals("/tx/s-0000000000"), results.get(3).getResultPath());
            check(results.get(2).getResultStat().getVersion() == 1, "version");
        });
        CASES.put("transaction: fails as one", () -> {
            CuratorFramework client = open();
            client.create().forPath("/tx2");
            refused(KeeperException.Code.BADVERSION, () -> client.transaction().forOperations(
                client.transactionOp().create().forPath("/tx2/a"),
                client.transactionOp().delete().withVersion(7).forPath("/tx2")));
            check(client.checkExists().forPath("/tx2/a") == null, "half done");
        });
        CASES.put("watches: persistent, recursive, removed", () -> {
            CuratorFramework client = open();
            client.create().forPath("/w");
            List<String> seen = new CopyOnWriteArrayList<>();
            Watcher watcher = event -> seen.add(event.getType() + " " + event.getPath());
            client.watchers().add().withMode(AddWatchMode.PERSISTENT_RECURSIVE).usingWatcher(watcher).forPath("/w");
            client.create().forPath("/w/a");
            client.setData().forPath("/w/a", bytes("1"));
            client.setData().forPath("/w/a", bytes("2"));
            eventually("events", () -> seen.equals(List.of("NodeCreated /w/a", "NodeDataChanged /w/a", "NodeDataChanged /w/a")));
            client.watchers().remove(watcher).forPath("/w");
            refused(KeeperException.Code.NOWATCHER, () -> client.watchers().remove(watcher).forPath("/w"));
        });
    }

    static void locks() {
        CASES.put("mutex: one holder at a time", () -> {
            AtomicInteger inside = new AtomicInteger(), most = new AtomicInteger(), total = new AtomicInteger();
            List<Callable<Void>> workers = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                InterProcessMutex mutex = new InterProcessMutex(open(), "/locks/one");
                workers.add(() -> {
                    for (int turn = 0; turn < 10; turn++) {
                        check(mutex.acquire(30, TimeUnit.SECONDS), "not acquired");
                        most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                        total.incrementAndGet();
                        inside.decrementAndGet();
                        mutex.release();
                    }
                    return null;
                });
            }
            together(workers);
            check(most.get() == 1 && total.get() == 40, most + " inside, " + total + " turns");
        });
        CASES.put("mutex: reentrant, and out of time for others", () -> {
            InterProcessMutex mutex = new InterProcessMutex(open(), "/locks/again");
            InterProcessMutex other = new InterProcessMutex(open(), "/locks/again");
            mutex.acquire();
            mutex.acquire();
            mutex.release();
            check(!other.acquire(200, TimeUnit.MILLISECONDS), "two holders");
            check(other.getParticipantNodes().size() == 1, "the one that gave up is still in the queue");
            mutex.release();
            check(other.acquire(10, TimeUnit.SECONDS), "not free");
        });
        CASES.put("mutex: freed when its holder closes", () -> {
            CuratorFramework holder = open();
            new InterProcessMutex(holder, "/locks/close").acquire();
            Future<Boolean> waiting = acquire(new InterProcessMutex(open(), "/locks/close"));
            holder.close();
            check(waiting.get(10, TimeUnit.SECONDS), "not acquired");
        });
        CASES.put("mutex: revoked", () -> {
            CuratorFramework asking = open();
            InterProcessMutex held = new InterProcessMutex(open(), "/locks/revoked");
            CountDownLatch asked = new CountDownLatch(1);
            held.makeRevocable(lock -> asked.countDown());
            held.acquire();
            Revoker.attemptRevoke(asking, held.getParticipantNodes().iterator().next());
            await(asked, "the holder is not asked");
            held.release();
            check(new InterProcessMutex(asking, "/locks/revoked").acquire(10, TimeUnit.SECONDS), "not free");
        });
        CASES.put("multi lock: all or none", () -> {
            CuratorFramework client = open();
            InterProcessMultiLock both = new InterProcessMultiLock(client, List.of("/locks/m1", "/locks/m2"));
            InterProcessMutex second = new InterProcessMutex(open(), "/locks/m2");
            second.acquire();
            check(!both.acquire(200, TimeUnit.MILLISECONDS), "both, though one is held");
            second.release();
            check(both.acquire(10, TimeUnit.SECONDS), "not free");
        });
        CASES.put("read write lock: readers share, a writer waits", () -> {
            InterProcessReadWriteLock one = new InterProcessReadWriteLock(open(), "/locks/rw");
            InterProcessReadWriteLock two = new InterProcessReadWriteLock(open(), "/locks/rw");
            one.readLock().acquire();
            check(two.readLock().acquire(10, TimeUnit.SECONDS), "a second reader waits");
            two.readLock().release();
            Future<Boolean> writing = acquire(two.writeLock());
            eventually("the writer in the queue", () -> two.writeLock().getParticipantNodes().size() == 1);
            check(!one.readLock().getParticipantNodes().isEmpty() && !writing.isDone(), "the writer does not wait");
            one.readLock().release();
            check(writing.get(10, TimeUnit.SECONDS), "the writer is not let in");
            check(!one.readLock().acquire(200, TimeUnit.MILLISECONDS), "a reader beside the writer");
        });
        CASES.put("semaphore: as many leases as it has", () -> {
            InterProcessSemaphoreV2 one = new InterProcessSemaphoreV2(open(), "/locks/semaphore", 2);
            InterProcessSemaphoreV2 two = new InterProcessSemaphoreV2(open(), "/locks/semaphore", 2);
            Lease first = one.acquire(), second = two.acquire();
            check(two.acquire(200, TimeUnit.MILLISECONDS) == null, "three leases of two");
            Future<Lease> third = POOL.submit(() -> two.acquire(10, TimeUnit.SECONDS));
            one.returnLease(first);
            check(third.get(10, TimeUnit.SECONDS) != null, "a returned lease is not given out");
            two.returnLease(second);
        });
    }

    static void others() {
        CASES.put("leader latch: the next one leads", () -> {
            LeaderLatch one = new LeaderLatch(open(), "/leader", "one"), two = new LeaderLatch(open(), "/leader", "two");
            one.start();
            check(one.await(10, TimeUnit.SECONDS), "no leader");
            two.start();
            eventually("two participants", () -> two.getParticipants().size() == 2);
            check(two.getLeader().getId().equals("one") && !two.hasLeadership(), "two leaders");
            one.close();
            check(two.await(10, TimeUnit.SECONDS), "no next leader");
            two.close();
        });
        CASES.put("leader selector: each has its turn", () -> {
            List<String> turns = new CopyOnWriteArrayList<>();
            CountDownLatch done = new CountDownLatch(3);
            List<LeaderSelector> all = new ArrayList<>();
            for (String name : List.of("a", "b", "c")) {
                all.add(new LeaderSelector(open(), "/selector", new LeaderSelectorListenerAdapter() {
                    public void takeLeadership(CuratorFramework client) {
                        turns.add(name);
                        done.countDown();
                    }
                }));
            }
            all.forEach(LeaderSelector::start);
            await(done, "turns: " + turns);
            all.forEach(LeaderSelector::close);
        });
        CASES.put("cache: follows a tree", () -> {
            CuratorFramework client = open();
            client.create().creatingParentsIfNeeded().forPath("/cache/there", bytes("0"));
            List<String> seen = new CopyOnWriteArrayList<>();
            CuratorCache cache = CuratorCache.build(open(), "/cache");
            cache.listenable().addListener((type, before, after) ->
                seen.add(type + " " + (after == null ? before : after).getPath()));
            cache.start();
            eventually("what was there", () -> seen.contains("NODE_CREATED /cache/there"));
            client.create().forPath("/cache/new");
            // The cache reads what a watch tells it of: a znode that is gone by then it does not show.
            eventually("what was created: " + seen, () -> seen.contains("NODE_CREATED /cache/new"));
            client.setData().forPath("/cache/there", bytes("1"));
            client.delete().forPath("/cache/new");
            eventually("what changed: " + seen, () -> seen.contains("NODE_DELETED /cache/new")
                && seen.contains("NODE_CHANGED /cache/there"));
            check(text(cache.get("/cache/there").get().getData()).equals("1"), "data");
            cache.close();
        });
        CASES.put("persistent node: comes back when it is deleted", () -> {
            CuratorFramework client = open();
            PersistentNode node = new PersistentNode(open(), CreateMode.EPHEMERAL, false, "/persistent", bytes("p"));
            node.start();
            check(node.waitForInitialCreate(10, TimeUnit.SECONDS), "not created");
            long first = client.checkExists().forPath("/persistent").getCzxid();
            client.delete().forPath("/persistent");
            eventually("a new znode", () -> {
                Stat stat = client.checkExists().forPath("/persistent");
                return stat != null && stat.getCzxid() > first;
            });
            node.close();
        });
        CASES.put("counter, queue and barrier", () -> {
            CuratorFramework one = open(), two = open();
            DistributedAtomicLong counter = new DistributedAtomicLong(one, "/counter", new RetryNTimes(50, 10));
            DistributedAtomicLong same = new DistributedAtomicLong(two, "/counter", new RetryNTimes(50, 10));
            for (int i = 0; i < 5; i++) check(counter.increment().succeeded() && same.increment().succeeded(), "increment");
            check(counter.get().postValue() == 10, "count " + counter.get().postValue());
            SimpleDistributedQueue queue = new SimpleDistributedQueue(one, "/queue");
            Future<byte[]> taken = POOL.submit(() -> new SimpleDistributedQueue(two, "/queue").poll(10, TimeUnit.SECONDS));
            queue.offer(bytes("item"));
            check(text(taken.get()).equals("item"), "item");
            Callable<Void> first = () -> through(one), second = () -> through(two);
            together(List.of(first, second));
        });
        CASES.put("session ended elsewhere: the lock passes on, a new session begins", () -> {
            CuratorFramework holder = open(), next = open();
            CountDownLatch lost = new CountDownLatch(1), back = new CountDownLatch(1);
            holder.getConnectionStateListenable().addListener((client, state) -> {
                if (state == ConnectionState.LOST) lost.countDown();
                if (state == ConnectionState.RECONNECTED && lost.getCount() == 0) back.countDown();
            });
            InterProcessMutex mutex = new InterProcessMutex(holder, "/locks/ended");
            mutex.acquire();
            PersistentNode node = new PersistentNode(holder, CreateMode.EPHEMERAL, false, "/ended", bytes("p"));
            node.start();
            check(node.waitForInitialCreate(10, TimeUnit.SECONDS), "not created");
            long old = session(holder);
            Future<Boolean> waiting = acquire(new InterProcessMutex(next, "/locks/ended"));
            end(holder.getZookeeperClient().getZooKeeper());
            check(waiting.get(20, TimeUnit.SECONDS), "the lock does not pass on");
            await(lost, "LOST");
            await(back, "RECONNECTED");
            eventually("the persistent node in the new session", () -> {
                Stat stat = next.checkExists().forPath("/ended");
                return stat != null && stat.getEphemeralOwner() == session(holder) && session(holder) != old;
            });
            node.close();
        });
    }

    /** All in one crash, because a restart of a JVM takes seconds; the cases behind the first look at what it left. */
    static void crash() {
        CASES.put("crash: session, lock, watches and ephemerals survive it", () -> {
            CuratorFramework holder = open(), other = open();
            List<ConnectionState> states = new CopyOnWriteArrayList<>();
            holder.getConnectionStateListenable().addListener((client, state) -> states.add(state));
            InterProcessMutex mutex = new InterProcessMutex(holder, "/crash/lock");
            check(mutex.acquire(10, TimeUnit.SECONDS), "not acquired");
            holder.create().forPath("/crash/data", bytes("acknowledged"));
            PersistentNode node = new PersistentNode(holder, CreateMode.EPHEMERAL, false, "/crash/node", bytes("p"));
            node.start();
            check(node.waitForInitialCreate(10, TimeUnit.SECONDS), "not created");
            List<String> seen = new CopyOnWriteArrayList<>();
            CuratorCache cache = CuratorCache.build(holder, "/crash");
            cache.listenable().addListener((type, before, after) -> { if (after != null) seen.add(after.getPath()); });
            cache.start();
            eventually("the cache", () -> seen.contains("/crash/data"));
            Stat before = holder.checkExists().forPath("/crash/node");
            long session = session(holder);
            Future<Boolean> waiting = acquire(new InterProcessMutex(other, "/crash/lock"));
            eventually("two in the queue", () -> mutex.getParticipantNodes().size() == 2);

            System.out.println("RESTART");
            INPUT.readLine();
            // With several servers its own may be one of those that went on.
            eventually("RECONNECTED", () -> states.contains(ConnectionState.RECONNECTED)
                || !states.contains(ConnectionState.SUSPENDED));
            check(!states.contains(ConnectionState.LOST) && session(holder) == session, "another session: " + states);
            check(text(holder.getData().forPath("/crash/data")).equals("acknowledged"), "data");
            // Not all of the stat is the same: the recipe writes its data again when it has reconnected.
            Stat kept = holder.checkExists().forPath("/crash/node");
            check(kept.getCzxid() == before.getCzxid() && kept.getEphemeralOwner() == session, "another ephemeral");
            check(mutex.isOwnedByCurrentThread() && !waiting.isDone(), "the lock has passed on");
            String after = other.create().creatingParentsIfNeeded().forPath("/crash/after");
            eventually("the cache's watch", () -> seen.contains(after));
            check(other.checkExists().forPath(after).getCzxid() > before.getCzxid(), "zxids went back");
            mutex.release();
            check(waiting.get(10, TimeUnit.SECONDS), "the next in the queue is not told");
            cache.close();
            node.close();
        });
        CASES.put("crash: what it kept is whole", () -> {
            CuratorFramework client = open();
            check(text(client.getData().forPath("/crash/data")).equals("acknowledged"), "data");
            refused(KeeperException.Code.NOAUTH, () -> client.getData().forPath("/guarded"));
            check(client.getChildren().forPath("/c/d").contains("t"), "the znode with a time to live");
            check(new DistributedAtomicLong(client, "/counter", new RetryNTimes(5, 10)).get().postValue() == 10, "counter");
            String next = client.create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath("/tx/s-");
            check(next.equals("/tx/s-0000000001"), next);
        });
    }

    static final ExecutorService POOL = Executors.newCachedThreadPool(runnable -> {
        Thread thread = new Thread(runnable);
        thread.setDaemon(true);
        return thread;
    });

    static CuratorFramework open() throws Exception {
        return start(CuratorFrameworkFactory.newClient(hosts, SESSION_MS, 15000, new RetryNTimes(60, 250)));
    }

    static CuratorFramework start(CuratorFramework client) throws Exception {
        OPEN.add(client);
        client.start();
        check(client.blockUntilConnected(15, TimeUnit.SECONDS), "no connection");
        return client;
    }

    static long session(CuratorFramework client) throws Exception {
        return client.getZookeeperClient().getZooKeeper().getSessionId();
    }

    /** Ends a session by taking it over and closing it. */
    static void end(ZooKeeper owner) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper second = new ZooKeeper(hosts, SESSION_MS, event -> {
            if (event.getState() == Watcher.Event.KeeperState.SyncConnected) connected.countDown();
        }, owner.getSessionId(), owner.getSessionPasswd());
        await(connected, "taking the session over");
        second.close();
    }

    static Future<Boolean> acquire(InterProcessMutex mutex) {
        return POOL.submit(() -> mutex.acquire(40, TimeUnit.SECONDS));
    }

    static Void through(CuratorFramework client) throws Exception {
        DistributedDoubleBarrier barrier = new DistributedDoubleBarrier(client, "/barrier", 2);
        check(barrier.enter(10, TimeUnit.SECONDS), "enter");
        check(barrier.leave(10, TimeUnit.SECONDS), "leave");
        return null;
    }

    static void together(List<Callable<Void>> workers) throws Exception {
        for (Future<Void> worker : POOL.invokeAll(workers)) worker.get();
    }

    static void refused(KeeperException.Code code, Callable<?> call) throws Exception {
        try {
            call.call();
        } catch (KeeperException refusal) {
            check(refusal.code() == code, code + " expected: " + refusal);
            return;
        }
        throw new AssertionError(code + " expected");
    }

    static void eventually(String what, Callable<Boolean> condition) throws Exception {
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20); !condition.call(); Thread.sleep(20)) {
            check(System.nanoTime() < end, "not in time: " + what);
        }
    }

    static void await(CountDownLatch latch, String what) throws Exception {
        check(latch.await(20, TimeUnit.SECONDS), "not in time: " + what);
    }

    static void check(boolean holds, String otherwise) {
        if (!holds) throw new AssertionError(otherwise);
    }

    static byte[] bytes(String text) {
        return text.getBytes();
    }

    static String text(byte[] bytes) {
        return new String(bytes);
    }

    static void run(String name, Case test) {
        long start = System.nanoTime();
        String wrong = "";
        Future<Void> running = POOL.submit(() -> { test.run(); return null; });
        try {
            running.get(CASE_SECONDS, TimeUnit.SECONDS);
        } catch (TimeoutException late) {
            running.cancel(true);
            wrong = "out of time";
        } catch (Exception error) {
            wrong = String.valueOf(error.getCause()).split("\n")[0];
        }
        OPEN.forEach(CuratorFramework::close);
        OPEN.clear();
        long ms = (System.nanoTime() - start) / 1000000;
        System.out.println((wrong.isEmpty() ? "PASS" : "FAIL") + "\t" + name + "\t" + ms + "\t" + wrong);
    }

    public static void main(String[] arguments) {
        znodes();
        locks();
        others();
        crash();
        if (arguments[0].equals("--list")) {
            CASES.keySet().forEach(System.out::println);
            return;
        }
        hosts = arguments[0];
        CASES.forEach(Recipes::run);
        System.exit(0);
    }
}
