// A lock with Apache Curator. Enter gives it away.
//
//   mvn -q -f tests/clients/control/pom.xml dependency:copy-dependencies -DoutputDirectory=/tmp/jars
//   java -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp '/tmp/jars/*' examples/clients/java/CuratorLock.java 127.0.0.1:2181 /locks/demo

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

public final class CuratorLock {
    /** The recipe keeps the path of its znode to its subclasses. */
    private static final class Mutex extends InterProcessMutex {
        Mutex(CuratorFramework client, String path) {
            super(client, path);
        }

        String node() {
            return getLockPath();
        }
    }

    private static volatile boolean held;

    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(
            arguments[0], 10_000, 10_000, new ExponentialBackoffRetry(100, 10));
        // Curator says LOST after the server has given the lock away (by up to a session timeout). So stop at SUSPENDED.
        client.getConnectionStateListenable().addListener((unused, state) -> {
            if (held && (state == ConnectionState.SUSPENDED || state == ConnectionState.LOST)) {
                Runtime.getRuntime().halt(75);
            }
        });
        client.start();
        Mutex mutex = new Mutex(client, arguments[1]);
        mutex.acquire();
        held = true;
        String node = mutex.node();
        // The fencing token: whatever the lock protects should refuse smaller ones.
        long token = client.checkExists().forPath(node).getCzxid();
        System.out.println("HELD " + node + " " + token);
        System.in.read();
        mutex.release();
        held = false;
        System.out.println("RELEASED " + node + " " + token);
        client.close();
    }
}
