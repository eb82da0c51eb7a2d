// The golden session of Apache Curator: what its recipes send. Usage: java -cp JARS CuratorSession.java HOST:PORT

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryOneTime;
import org.apache.zookeeper.CreateMode;

public class CuratorSession {
    public static void main(String[] arguments) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(arguments[0], 10000, 10000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        client.create().creatingParentsIfNeeded().forPath("/g/a/b", "one".getBytes());
        client.create().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath("/g/p-");
        client.setData().withVersion(0).forPath("/g/a/b", "two".getBytes());
        client.getData().forPath("/g/a/b");
        client.checkExists().forPath("/none");
        client.getChildren().forPath("/g");
        client.transaction().forOperations(
            client.transactionOp().create().forPath("/g/t", new byte[] {1}),
            client.transactionOp().delete().forPath("/g/t"));

        InterProcessMutex mutex = new InterProcessMutex(client, "/g/lock");
        mutex.acquire(5, TimeUnit.SECONDS);
        mutex.release();
        InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, "/g/rw");
        both.readLock().acquire();
        both.readLock().release();
        both.writeLock().acquire();
        both.writeLock().release();
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, "/g/semaphore", 2);
        Lease lease = semaphore.acquire();
        semaphore.returnLease(lease);
        LeaderLatch latch = new LeaderLatch(client, "/g/leader");
        latch.start();
        latch.await(5, TimeUnit.SECONDS);
        latch.close();

        CountDownLatch noticed = new CountDownLatch(1);
        CuratorCache cache = CuratorCache.build(client, "/g/a");
        cache.listenable().addListener((type, before, after) -> {
            if (after != null && after.getPath().equals("/g/a/c")) noticed.countDown();
        });
        cache.start();
        client.create().forPath("/g/a/c");
        noticed.await(5, TimeUnit.SECONDS);
        cache.close();
        client.delete().guaranteed().deletingChildrenIfNeeded().forPath("/g");
        client.close();
    }
}
