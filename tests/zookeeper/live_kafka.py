"""Kafka in ZooKeeper's mode, there and back: the part `migrate-kafka`.

Two brokers get a connect string with the addresses of both ensembles. They go to Lockkeeper when ZooKeeper is closed, back when
it is opened and the migration is given up, and there for good. Records are produced all the time; each acknowledged one is read
at the end, once. No broker loses its session; one that is stopped hands over its partitions.
"""

import json
import logging
import signal
import subprocess
import time
from collections import Counter

from live_clients import connect_string
from live_machines import MACHINES, Machines, Orders, free_everywhere
from live_rows import connected
from live_servers import Lockkeeper, Ports
from parts import forget
from real import fetched

KAFKA = [("org.apache.kafka", "kafka_2.13", "3.9.0"), ("org.apache.kafka", "kafka-tools", "3.9.0"),
         ("ch.qos.reload4j", "reload4j", "1.2.25")]
BROKERS, TOPIC = (1, 2), "records"
JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class Kafka:
    def __init__(self, setting):
        self.setting = setting
        self.theirs, self.ours = Machines(setting), Lockkeeper(setting, Ports(0))
        self.orders, self.folder = Orders(setting, self.ours), setting.folder / "kafka"
        self.lib = fetched(setting.work, "kafka-3.9.0", KAFKA)
        self.ports = dict(zip(BROKERS, free_everywhere(len(BROKERS))))
        self.processes, self.producer = {}, None
        self.folder.mkdir()
        (self.folder / "log.properties").write_text(
            "log4j.rootLogger=INFO, file\nlog4j.appender.file=org.apache.log4j.FileAppender\nlog4j.appender.file.file=${log}\n"
            "log4j.appender.file.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.file.layout.ConversionPattern=%d %p %m%n\n")
        self.begin = time.monotonic()

    def say(self, what):
        records = len(self.acknowledged())
        print(f"  {time.monotonic() - self.begin:6.1f} s: {what}; {records} records are acknowledged", flush=True)

    # Processes of Kafka.

    def java(self, name, *words):
        output = open(self.folder / f"{name}.txt", "ab")
        command = ["java", *JAVA, f"-Dlog4j.configuration=file:{self.folder}/log.properties", f"-Dlog={self.folder}/{name}.log",
                   "-cp", f"{self.lib}/*", *words]
        return subprocess.Popen(command, stdout=output, stderr=output)

    def start_broker(self, number, hosts):
        lines = {"broker.id": number, "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[number]}",
                 "log.dirs": self.folder / f"data-{number}", "zookeeper.connect": connect_string(hosts),
                 "num.partitions": 3, "default.replication.factor": 2, "offsets.topic.replication.factor": 2,
                 "offsets.topic.num.partitions": 3, "log.cleaner.enable": "false", "num.network.threads": 2, "num.io.threads": 2}
        file = self.folder / f"{number}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        self.processes[number] = self.java(f"broker-{number}", "kafka.Kafka", str(file))
        self.wait(lambda: number in self.sessions(hosts), f"broker {number} to be there")

    def stop_broker(self, number, hosts):
        """It hands its partitions over before it ends, if the other has all of them."""
        self.wait(lambda: self.are_in_sync(hosts), "all replicas to be in sync")
        start = time.monotonic()
        self.processes[number].send_signal(signal.SIGTERM)
        self.processes.pop(number).wait(60)
        said = (self.folder / f"broker-{number}.log").read_text(errors="replace")
        said = said[said.rindex("Starting controlled shutdown"):]
        assert "Controlled shutdown request returned successfully" in said, f"broker {number} did not hand over: {said[:1000]}"
        self.say(f"broker {number} has stopped in {time.monotonic() - start:.1f} s, and handed over its partitions")

    def restart_broker(self, number, hosts):
        self.stop_broker(number, hosts)
        self.start_broker(number, hosts)

    def bootstrap(self):
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def tool(self, name, *words):
        return self.java(name, *words, "--bootstrap-server", self.bootstrap())

    def create_topic(self, name):
        done = self.tool("topics", "org.apache.kafka.tools.TopicCommand", "--create", "--topic", name, "--partitions", "3",
                         "--replication-factor", "2").wait(60)
        assert done == 0, f"topic {name} cannot be created: {(self.folder / 'topics.txt').read_text()[-1000:]}"

    # What is known.

    def wait(self, what, words, seconds=60):
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, f"waited {seconds} s for {words}"
            for number, process in self.processes.items():
                assert process.poll() is None, f"broker {number} ended with {process.returncode}"
            time.sleep(0.2)

    def sessions(self, hosts):
        """The session of each broker, as its ephemeral says."""
        client = connected(connect_string(hosts))
        try:
            client.sync("/")
            found = {}
            for number in BROKERS:
                stat = client.exists(f"/brokers/ids/{number}")
                if stat:
                    found[number] = stat.ephemeralOwner
            return found
        finally:
            forget(client)

    def are_in_sync(self, hosts):
        client = connected(connect_string(hosts))
        try:
            client.sync("/")
            paths = [f"/brokers/topics/{topic}/partitions/{partition}/state" for topic in client.get_children("/brokers/topics")
                     for partition in client.get_children(f"/brokers/topics/{topic}/partitions")]
            return all(len(json.loads(client.get(path)[0])["isr"]) == len(BROKERS) for path in paths)
        finally:
            forget(client)

    def acknowledged(self):
        file = self.folder / "producer.txt"
        lines = file.read_text(errors="replace").splitlines() if file.exists() else []
        told = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [one["value"] for one in told if one["name"] == "producer_send_success"]

    def all_read(self):
        """Each acknowledged record is there, once."""
        self.producer.send_signal(signal.SIGTERM)
        self.producer.wait(60)
        self.tool("consumer", "org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", TOPIC, "--from-beginning",
                  "--timeout-ms", "10000").wait(90)
        read = Counter(line for line in (self.folder / "consumer.txt").read_text().splitlines() if line.isdigit())
        acknowledged = self.acknowledged()
        lost = [value for value in acknowledged if not read[value]]
        doubled = [value for value in acknowledged if read[value] > 1]
        print(f"  {len(acknowledged)} records acknowledged, {len(lost)} lost, {len(doubled)} doubled", flush=True)
        assert not lost and not doubled and len(acknowledged) > 100, f"lost: {lost[:5]}, doubled: {doubled[:5]}"

    # The way.

    def start(self):
        self.theirs.start_all()
        for number in BROKERS:
            self.start_broker(number, self.theirs.hosts())
        self.create_topic(TOPIC)
        self.producer = self.tool("producer", "org.apache.kafka.tools.VerifiableProducer", "--topic", TOPIC,
                                  "--throughput", "100", "--acks", "-1")
        self.wait(lambda: len(self.acknowledged()) > 50, "the first records")
        self.ours.start_all()

    def close_theirs(self):
        self.theirs.close_to_clients(0, 1, 2)
        self.orders.wait(lambda status: status["sessions_elsewhere"] == 0)

    def produced(self, name):
        """Records and a new topic go through."""
        before = len(self.acknowledged())
        self.wait(lambda: len(self.acknowledged()) > before + 200, "records", seconds=30)
        self.create_topic(name)
        self.say(f"{name}: a topic was created")

    def way(self):
        self.start()
        self.say("brokers are on ZooKeeper")
        self.orders.follow(self.theirs.from_(0))
        both = self.theirs.hosts() + self.ours.hosts()
        for number in BROKERS:
            self.restart_broker(number, both)
        self.say("brokers have the addresses of both")
        first = self.sessions(self.ours.hosts())
        self.close_theirs()
        self.produced("there")
        for at in range(3):
            self.theirs.restart(at, closed=False)
            self.theirs.leader()
        self.orders.do("abort")
        self.produced("back")
        assert self.sessions(self.theirs.hosts()) == first, "a broker lost its session on the way back"
        self.restart_broker(BROKERS[0], both)
        first = self.sessions(self.theirs.hosts())
        self.orders.follow(self.theirs.from_(0))
        self.close_theirs()
        ports = [word for host in MACHINES for word in ("--ports", f"{host}={self.theirs.client}")]
        self.orders.do("cutover", *ports)
        self.produced("cutover")
        self.theirs.stop_all()
        self.orders.do("finish")
        for at in self.ours.in_order():
            self.ours.restart(at)
            self.ours.leader()
        self.produced("after")
        now = self.sessions(self.ours.hosts())
        assert now == first, f"a broker lost its session: {now} and not {first}"
        print(f"           the brokers' sessions are the same since their restart: "
              f"{', '.join(f'{one & (1 << 64) - 1:#x}' for one in now.values())}", flush=True)
        self.all_read()
        self.stop_broker(BROKERS[0], self.ours.hosts())

    def close(self):
        for process in (*self.processes.values(), self.producer):
            if process and process.poll() is None:
                process.kill()
                process.wait()


def migrate_kafka(setting):
    # It warns of each closed port, and here some of both ensembles' are closed all the time.
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    kafka = Kafka(setting)
    try:
        kafka.way()
    except Exception:
        for number in BROKERS:
            for line in (kafka.folder / f"broker-{number}.log").read_text(errors="replace").splitlines()[-12:]:
                print(f"  broker {number}: {line:.250}")
        raise
    finally:
        kafka.close()


PARTS = {"migrate-kafka": migrate_kafka}
