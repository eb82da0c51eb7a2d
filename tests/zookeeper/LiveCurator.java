import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryForever;
import org.apache.zookeeper.data.Stat;

/** Locks of Curator in a live migration: LiveCurator HOSTS COUNT ROOT. Says and takes lines as live_kazoo.py does. */
public final class LiveCurator {
    private static volatile boolean going = true;
    private static volatile boolean still;

    /** Curator's lock, with the name of its znode. */
    private static final class Mutex extends InterProcessMutex {
        Mutex(CuratorFramework client, String path) {
            super(client, path);
        }

        String znode() {
            return getLockPath();
        }
    }

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[1]);
        List<CuratorFramework> clients = new CopyOnWriteArrayList<>();
        String path = arguments[2] + "/locks/curator";
        for (int number = 0; number < count; number++) {
            CuratorFramework client = CuratorFrameworkFactory.newClient(arguments[0], 20_000, 10_000, new RetryForever(100));
            String name = "curator-" + number;
            client.getConnectionStateListenable().addListener((of, state) -> {
                if (state == ConnectionState.LOST && going) {
                    say("{\"broken\": \"sessions\", \"line\": \"" + name + " has lost its session\"}");
                }
            });
            client.start();
            client.blockUntilConnected();
            clients.add(client);
            Thread worker = new Thread(() -> work(client, path, name));
            worker.setDaemon(true);
            worker.start();
        }
        say("{\"ready\": " + count + "}");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); going && order != null; order = orders.readLine()) {
            if (order.contains("\"move\"")) {
                int number = Integer.parseInt(order.replaceAll(".*\"move\": (\\d+).*", "$1"));
                String hosts = order.replaceAll(".*\"hosts\": \"([^\"]*)\".*", "$1");
                clients.get(number).getZookeeperClient().getZooKeeper().updateServerList(hosts);
            } else if (order.contains("\"quiet\"")) {
                still = order.contains("true");
                if (still) {
                    Thread.sleep(1000);
                }
                say("{\"quiet\": " + still + "}");
            } else if (order.contains("\"stop\"")) {
                going = false;
                break;
            }
        }
        say("{\"stopped\": true}");
        System.exit(0);
    }

    private static void work(CuratorFramework client, String path, String name) {
        try {
            Mutex mutex = new Mutex(client, path);
            while (going) {
                mutex.acquire();
                double begin = System.nanoTime() / 1e9;
                Stat stat = client.checkExists().forPath(mutex.znode());
                Thread.sleep(ThreadLocalRandom.current().nextInt(10, 100));
                say("{\"turn\": \"" + path + "\", \"begin\": " + begin + ", \"end\": " + System.nanoTime() / 1e9 + ", \"token\": "
                    + stat.getCzxid() + ", \"holder\": \"" + name + "\"}");
                while (still) {
                    Thread.sleep(10);
                }
                mutex.release();
            }
        } catch (Exception error) {
            if (going) {
                say("{\"broken\": \"curator\", \"line\": \"" + name + ": " + error.toString().replace('"', '\'') + "\"}");
            }
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
