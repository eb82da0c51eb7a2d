import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryForever;
import org.apache.zookeeper.data.Stat;

/** A Curator lock in a process of its own. It says and answers what kazoo_lock.py does. */
public final class CuratorLock {
    /** The recipe keeps the path of its znode to itself. */
    static final class Mutex extends InterProcessMutex {
        Mutex(CuratorFramework client, String path) {
            super(client, path);
        }

        String node() {
            return getLockPath();
        }
    }

    static volatile String node;

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static String told(Stat stat) {
        return " 0x" + Long.toHexString(stat.getEphemeralOwner()) + " " + stat.getCzxid();
    }

    public static void main(String[] arguments) throws Exception {
        int timeoutMs = Integer.parseInt(arguments[1]);
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(arguments[0], timeoutMs, timeoutMs, new RetryForever(100));
        client.getConnectionStateListenable().addListener((framework, state) -> say("STATE " + state));
        client.start();
        client.blockUntilConnected();
        say("READY 0x" + Long.toHexString(client.getZookeeperClient().getZooKeeper().getSessionId()));
        Mutex mutex = new Mutex(client, arguments[2]);
        // A mutex belongs to the thread that took it.
        ExecutorService owner = Executors.newSingleThreadExecutor(task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });
        owner.submit(() -> {
            mutex.acquire();
            Stat stat = client.checkExists().forPath(mutex.node());
            node = mutex.node();
            say("HELD" + told(stat));
            return null;
        });
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.equals("check")) {
                Stat stat = node == null ? null : client.checkExists().forPath(node);
                say(stat == null ? "NONE" : "MINE" + told(stat));
            } else if (line.equals("release")) {
                owner.submit(() -> {
                    mutex.release();
                    say("RELEASED");
                    return null;
                });
            }
        }
        client.close();
        System.exit(0);
    }
}
