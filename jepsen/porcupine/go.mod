module lockkeeper/porcupine

go 1.23

require github.com/anishathalye/porcupine v1.3.1

require github.com/go-zookeeper/zk v1.0.4
