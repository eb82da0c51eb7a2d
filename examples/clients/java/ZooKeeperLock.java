// The same lock with ZooKeeper's plain Java client. Enter gives it away.
//
//   mvn -q -f tests/clients/control/pom.xml dependency:copy-dependencies -DoutputDirectory=/tmp/jars
//   java -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp '/tmp/jars/*' examples/clients/java/ZooKeeperLock.java 127.0.0.1:2181 /locks/demo

import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException.ConnectionLossException;
import org.apache.zookeeper.KeeperException.NoNodeException;
import org.apache.zookeeper.KeeperException.NodeExistsException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;

public final class ZooKeeperLock {
    private static volatile boolean held;

    public static void main(String[] arguments) throws Exception {
        String path = arguments[1];
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper client = new ZooKeeper(arguments[0], 10_000, event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            } else if (held) {
                Runtime.getRuntime().halt(75); // perhaps nobody else has it yet: stop now
            }
        });
        connected.await();
        for (int end = path.indexOf('/', 1); ; end = path.indexOf('/', end + 1)) {
            try {
                client.create(end < 0 ? path : path.substring(0, end), null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            } catch (NodeExistsException alreadyThere) {
                // somebody has locked here before
            }
            if (end < 0) break;
        }
        String own = path + "/" + enter(client, path);
        for (String before = before(client, path, own); before != null; before = before(client, path, own)) {
            CountDownLatch changed = new CountDownLatch(1);
            try {
                client.getData(path + "/" + before, event -> changed.countDown(), null);
                changed.await();
            } catch (NoNodeException gone) {
                // look who is before us now
            }
        }
        held = true;
        // The fencing token: whatever the lock protects should refuse smaller ones.
        long token = client.exists(own, false).getCzxid();
        System.out.println("HELD " + own + " " + token);
        System.in.read();
        client.delete(own, -1);
        held = false;
        System.out.println("RELEASED " + own + " " + token);
        client.close();
    }

    /** Queues; after a lost connection, it finds its znode by its name if it was created. */
    private static String enter(ZooKeeper client, String path) throws Exception {
        String prefix = "_c_" + UUID.randomUUID() + "-lock-"; // Curator's names
        try {
            String node = path + "/" + prefix;
            return client.create(node, null, Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL).substring(path.length() + 1);
        } catch (ConnectionLossException unknown) {
            return client.getChildren(path, false).stream().filter(name -> name.startsWith(prefix)).findAny().orElseThrow(() -> unknown);
        }
    }

    /** The nearest before us, or null if it is our turn. */
    private static String before(ZooKeeper client, String path, String own) throws Exception {
        return client.getChildren(path, false).stream().filter(name -> number(name) < number(own))
            .max((one, other) -> Long.compare(number(one), number(other))).orElse(null);
    }

    private static long number(String name) {
        return Long.parseLong(name.substring(name.length() - 10));
    }
}
