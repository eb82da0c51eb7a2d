// The golden session of Apache's Java client. Usage: java -cp JARS Session.java HOST:PORT

import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

public class Session {
    interface Call { void run() throws Exception; }

    static final Semaphore events = new Semaphore(0);
    static final Watcher watcher = event -> { if (event.getPath() != null) events.release(); };
    static final Semaphore connected = new Semaphore(0);

    static void expect(KeeperException.Code code, Call call) throws Exception {
        try {
            call.run();
        } catch (KeeperException error) {
            if (error.code() == code) return;
            throw error;
        }
        throw new AssertionError("no " + code);
    }

    static void seen(int count) throws Exception {
        if (!events.tryAcquire(count, 5, TimeUnit.SECONDS)) throw new AssertionError("events missing");
    }

    static void sync(ZooKeeper zk, String path) throws Exception {
        CountDownLatch done = new CountDownLatch(1);
        zk.sync(path, (rc, p, context) -> done.countDown(), null);
        done.await();
    }

    static ZooKeeper connect(String address) throws Exception {
        ZooKeeper zk = new ZooKeeper(address, 10000, event -> {
            if (event.getState() == Watcher.Event.KeeperState.SyncConnected && event.getPath() == null) connected.release();
        });
        connected.acquire();
        return zk;
    }

    static void znodes(ZooKeeper zk) throws Exception {
        byte[] one = "one".getBytes();
        Stat stat = new Stat();
        zk.create("/g", one, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        zk.create("/g/e", null, Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        zk.create("/g/s-", new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_SEQUENTIAL);
        zk.create("/g/es-", one, Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL, stat);
        zk.create("/g/c", one, Ids.OPEN_ACL_UNSAFE, CreateMode.CONTAINER, stat);
        zk.create("/g/t", one, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_WITH_TTL, stat, 600000);
        zk.create("/g/ts-", one, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL, stat, 600000);
        expect(KeeperException.Code.NODEEXISTS, () -> zk.create("/g", one, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));
        zk.getData("/g", false, stat);
        zk.getData("/g/e", false, stat);
        expect(KeeperException.Code.NONODE, () -> zk.getData("/none", false, null));
        zk.exists("/g", false);
        zk.exists("/none", false);
        zk.getChildren("/g", false);
        zk.getChildren("/g", false, stat);
        zk.getAllChildrenNumber("/");
        zk.getEphemerals("/g");
        zk.getConfig(false, stat);
        sync(zk, "/g");
    }

    static void watches(ZooKeeper zk) throws Exception {
        zk.getData("/g", watcher, null);
        zk.getChildren("/g", watcher);
        zk.exists("/g/later", watcher);
        zk.setData("/g", "two".getBytes(), -1);
        zk.create("/g/later", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        seen(3);
        expect(KeeperException.Code.BADVERSION, () -> zk.setData("/g", null, 0));
        zk.addWatch("/g/c", watcher, AddWatchMode.PERSISTENT);
        zk.addWatch("/g/t", watcher, AddWatchMode.PERSISTENT_RECURSIVE);
        zk.setData("/g/c", null, -1);
        zk.create("/g/t/x", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        zk.delete("/g/t/x", -1);
        seen(3);
        zk.removeAllWatches("/g/t", Watcher.WatcherType.Any, false);
        seen(1);
        expect(KeeperException.Code.NOWATCHER, () -> zk.removeWatches("/g/e", watcher, Watcher.WatcherType.Data, false));
        zk.getData("/g/later", watcher, null);
        zk.removeWatches("/g/later", watcher, Watcher.WatcherType.Data, false);
        seen(1);
    }

    static void transactions(ZooKeeper zk) throws Exception {
        zk.multi(Arrays.asList(Op.create("/g/m", "m".getBytes(), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
            Op.create("/g/ms-", null, Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL),
            Op.create("/g/mt", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_WITH_TTL, 600000),
            Op.create("/g/mc", null, Ids.OPEN_ACL_UNSAFE, CreateMode.CONTAINER),
            Op.setData("/g/m", "n".getBytes(), 0), Op.check("/g/m", 1), Op.delete("/g/m", 1)));
        expect(KeeperException.Code.BADVERSION, () -> zk.multi(Arrays.asList(
            Op.create("/g/u", null, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT), Op.check("/g", 99),
            Op.delete("/g/c", -1))));
        zk.multi(Arrays.asList(Op.getData("/g"), Op.getChildren("/g"), Op.getData("/none")));
        zk.multi(Arrays.<Op>asList());
    }

    static void access(ZooKeeper zk) throws Exception {
        zk.getACL("/g", new Stat());
        zk.whoAmI();
        zk.addAuthInfo("digest", "bob:pw".getBytes());
        zk.whoAmI();
        zk.setACL("/g/later", Ids.CREATOR_ALL_ACL, 0);
        zk.getACL("/g/later", new Stat());
        expect(KeeperException.Code.INVALIDACL, () -> zk.setACL("/g/later", List.of(), -1));
        expect(KeeperException.Code.NOTEMPTY, () -> zk.delete("/g", -1));
    }

    public static void main(String[] arguments) throws Exception {
        ZooKeeper zk = connect(arguments[0]);
        znodes(zk);
        watches(zk);
        transactions(zk);
        access(zk);
        zk.getData("/g", watcher, null);
        zk.exists("/g/gone", watcher);
        zk.getChildren("/g", watcher);
        zk.exists("/drop", false);
        connected.acquire();
        zk.getData("/g/e", false, null);
        for (String child : zk.getChildren("/g", false)) zk.delete("/g/" + child, -1);
        zk.delete("/g", -1);
        zk.close();
    }
}
