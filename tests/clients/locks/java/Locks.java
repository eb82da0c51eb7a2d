import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;

/** The locks of Curator, and ZooKeeper's own recipe in Java, under the orders of tests/clients/interop (locks/README.md). */
public final class Locks {
    /** A lock that is taken and given away by one thread, as Curator wants it. */
    private interface Lock {
        void take() throws Exception;

        void free() throws Exception;
    }

    private static final CuratorFramework[] CURATORS = new CuratorFramework[2];
    private static final ZooKeeper[] CLIENTS = new ZooKeeper[2];
    private static final Map<String, CountDownLatch> ORDERS_TO_FREE = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        for (int session = 0; session < 2; session++) {
            CURATORS[session] = CuratorFrameworkFactory.newClient(arguments[0], 30_000, 10_000, new RetryOneTime(100));
            CURATORS[session].start();
            CURATORS[session].blockUntilConnected();
            CountDownLatch connected = new CountDownLatch(1);
            CLIENTS[session] = new ZooKeeper(arguments[0], 30_000, event -> {
                if (event.getState() == KeeperState.SyncConnected) {
                    connected.countDown();
                }
            });
            connected.await();
        }
        say("READY");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            String[] words = order.split(" ");
            String id = words[1];
            if (words[0].equals("free")) {
                ORDERS_TO_FREE.get(id).countDown();
                continue;
            }
            Lock lock = lock(words[2], Integer.parseInt(words[3]), words[4]);
            CountDownLatch toFree = new CountDownLatch(1);
            ORDERS_TO_FREE.put(id, toFree);
            Thread thread = new Thread(() -> hold(id, lock, toFree));
            thread.setDaemon(true);
            thread.start();
        }
    }

    private static void hold(String id, Lock lock, CountDownLatch toFree) {
        try {
            lock.take();
            say("GOT " + id + " ");
            toFree.await();
            lock.free();
            say("FREED " + id + " ");
        } catch (Exception error) {
            say("ERROR " + id + " " + error);
        }
    }

    private static synchronized void say(String line) {
        System.out.print(line + "\n");
        System.out.flush();
    }

    private static Lock lock(String kind, int session, String path) {
        CuratorFramework curator = CURATORS[session];
        switch (kind) {
            case "curator":
                return of(new InterProcessMutex(curator, path));
            case "curator-read":
                return of(new InterProcessReadWriteLock(curator, path).readLock());
            case "curator-write":
                return of(new InterProcessReadWriteLock(curator, path).writeLock());
            case "zk-java":
                return of(CLIENTS[session], path);
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static Lock of(InterProcessMutex mutex) {
        return new Lock() {
            @Override
            public void take() throws Exception {
                mutex.acquire();
            }

            @Override
            public void free() throws Exception {
                mutex.release();
            }
        };
    }

    private static Lock of(ZooKeeper client, String path) {
        CountDownLatch acquired = new CountDownLatch(1);
        WriteLock lock = new WriteLock(client, path, null, new LockListener() {
            @Override
            public void lockAcquired() {
                acquired.countDown();
            }

            @Override
            public void lockReleased() {
                // only when this program asks for it
            }
        });
        return new Lock() {
            @Override
            public void take() throws Exception {
                lock.lock();
                acquired.await();
            }

            @Override
            public void free() {
                lock.unlock();
            }
        };
    }
}
