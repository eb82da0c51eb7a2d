import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.curator.ensemble.fixed.FixedEnsembleProvider;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryForever;

/**
 * Curator with its defaults, EnsembleTracker included: LiveTracker HOSTS COUNT ROOT. Each client contends for one mutex and one
 * latch. Says lines as live_kazoo.py does, and takes {"move": N, "hosts": ...}, {"restart": N, "hosts": ...}, {"where": true}.
 */
public final class LiveTracker {
    private static volatile boolean going = true;

    /** Curator's lock, with the name of its znode. */
    private static final class Mutex extends InterProcessMutex {
        Mutex(CuratorFramework client, String path) {
            super(client, path);
        }

        String znode() {
            return getLockPath();
        }
    }

    /** A client, its thread, and its place in the latch. */
    private static final class Contender {
        final String name;
        final String root;
        FixedEnsembleProvider ensemble;
        CuratorFramework client;
        LeaderLatch latch;
        Thread worker;
        long session;
        volatile boolean open;
        private double leads = -1;

        Contender(String name, String root) {
            this.name = name;
            this.root = root;
        }

        void start(String hosts) throws Exception {
            open = true;
            ensemble = new FixedEnsembleProvider(hosts);
            client = CuratorFrameworkFactory.builder().ensembleProvider(ensemble).retryPolicy(new RetryForever(100)).build();
            client.getConnectionStateListenable().addListener((of, state) -> {
                if (state == ConnectionState.LOST && going && open) {
                    broken("sessions", name + " has lost its session");
                }
            });
            client.start();
            client.blockUntilConnected();
            session = client.getZookeeperClient().getZooKeeper().getSessionId();
            latch = new LeaderLatch(client, root + "/latch", name);
            latch.addListener(new LeaderLatchListener() {
                @Override
                public void isLeader() {
                    leads(true);
                }

                @Override
                public void notLeader() {
                    leads(false);
                }
            });
            latch.start();
            worker = new Thread(this::work);
            worker.setDaemon(true);
            worker.start();
        }

        /** The latch removes its znode before it says that it leads no more. */
        void close() throws Exception {
            open = false;
            worker.join(60_000);
            leads(false);
            latch.close();
            client.close();
        }

        private synchronized void leads(boolean does) {
            if (does) {
                leads = now();
            } else if (leads >= 0) {
                turn(root + "/latch", leads, System.nanoTime(), name);
                leads = -1;
            }
        }

        private void work() {
            String path = root + "/mutex";
            try {
                Mutex mutex = new Mutex(client, path);
                while (going && open) {
                    mutex.acquire();
                    double begin = now();
                    long token = client.checkExists().forPath(mutex.znode()).getCzxid();
                    Thread.sleep(ThreadLocalRandom.current().nextInt(10, 100));
                    turn(path, begin, token, name);
                    mutex.release();
                }
            } catch (Exception error) {
                if (going) {
                    broken("curator", name + ": " + error.toString().replace('"', '\''));
                }
            }
        }

        String where() throws Exception {
            org.apache.zookeeper.ZooKeeper handle = client.getZookeeperClient().getZooKeeper();
            if (handle.getSessionId() != session) {
                broken("sessions", name + " has another session than at its start");
                session = handle.getSessionId();
            }
            String server = handle.toString().replaceAll(".*remoteserver:[^/ ]*/?(\\S+) .*", "$1");
            return "[\"" + server + "\", \"" + client.getZookeeperClient().getCurrentConnectionString() + "\", \"0x"
                + Long.toHexString(session) + "\"]";
        }
    }

    public static void main(String[] arguments) throws Exception {
        List<Contender> contenders = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(arguments[1]); number++) {
            contenders.add(new Contender("tracker-" + number, arguments[2]));
            contenders.get(number).start(arguments[0]);
        }
        say("{\"ready\": " + contenders.size() + "}");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null && !order.contains("\"stop\""); order = orders.readLine()) {
            if (order.contains("\"where\"")) {
                List<String> all = new ArrayList<>();
                for (Contender contender : contenders) {
                    all.add(contender.where());
                }
                say("{\"where\": [" + String.join(", ", all) + "]}");
                continue;
            }
            Contender one = contenders.get(Integer.parseInt(order.replaceAll(".*\"(?:move|restart)\": (\\d+).*", "$1")));
            String hosts = order.replaceAll(".*\"hosts\": \"([^\"]*)\".*", "$1");
            if (order.contains("\"restart\"")) {
                one.close();
                one.start(hosts);
            } else {
                // The first alone would wait for the next event; the second alone would be undone at that.
                one.ensemble.setConnectionString(hosts);
                one.client.getZookeeperClient().getZooKeeper().updateServerList(hosts);
            }
        }
        for (Contender contender : contenders) {
            contender.where();
            contender.leads(false);
        }
        going = false;
        say("{\"stopped\": true}");
        System.exit(0);
    }

    private static double now() {
        return System.nanoTime() / 1e9;
    }

    private static void turn(String lock, double begin, long token, String holder) {
        say("{\"turn\": \"" + lock + "\", \"begin\": " + begin + ", \"end\": " + now() + ", \"token\": " + token
            + ", \"holder\": \"" + holder + "\"}");
    }

    private static void broken(String kind, String line) {
        say("{\"broken\": \"" + kind + "\", \"line\": \"" + line + "\"}");
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
