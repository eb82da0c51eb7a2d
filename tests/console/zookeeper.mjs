// Just enough of a ZooKeeper client to make locks: one session, one request after another.

import { connect } from "node:net";

const OPS = { create: 1, delete: 2, getData: 4, setData: 5, ping: 11, close: -11 };

class Writer {
  parts = [];
  int(value) { const bytes = Buffer.alloc(4); bytes.writeInt32BE(value); this.parts.push(bytes); return this; }
  long(value) { const bytes = Buffer.alloc(8); bytes.writeBigInt64BE(BigInt(value)); this.parts.push(bytes); return this; }
  bool(value) { this.parts.push(Buffer.from([value ? 1 : 0])); return this; }
  bytes(value) { const bytes = Buffer.from(value); return this.int(bytes.length).raw(bytes); }
  raw(bytes) { this.parts.push(bytes); return this; }
  frame() { const body = Buffer.concat(this.parts); const head = Buffer.alloc(4); head.writeInt32BE(body.length); return Buffer.concat([head, body]); }
}

export class Client {
  // `address`: host:port.
  static async open(address, timeoutMs = 20_000) {
    const client = new Client();
    const [host, port] = [address.slice(0, address.lastIndexOf(":")), Number(address.slice(address.lastIndexOf(":") + 1))];
    client.socket = connect({ host, port, noDelay: true });
    client.waiting = [];
    client.xid = 0;
    let rest = Buffer.alloc(0);
    client.socket.on("data", chunk => {
      rest = Buffer.concat([rest, chunk]);
      while (rest.length >= 4 && rest.length >= 4 + rest.readInt32BE(0)) {
        const length = rest.readInt32BE(0);
        client.take(rest.subarray(4, 4 + length));
        rest = rest.subarray(4 + length);
      }
    });
    const failed = error => client.waiting.splice(0).forEach(one => one.reject(error ?? new Error("the connection ended")));
    client.socket.on("error", failed).on("close", () => failed());
    const greeting = new Writer().int(0).long(0).int(timeoutMs).long(0).bytes(Buffer.alloc(16)).bool(false).frame();
    const answer = await client.exchange(greeting);
    if (answer.readInt32BE(4) <= 0) throw new Error("no session");
    client.session = "0x" + answer.readBigUInt64BE(8).toString(16);
    // Headers from now on.
    client.isOpen = true;
    client.pings = setInterval(() => client.socket.write(new Writer().int(-2).int(OPS.ping).frame()), timeoutMs / 3);
    return client;
  }

  take(body) {
    if (this.isOpen && body.readInt32BE(0) < 0) return; // an event or the answer to a ping
    this.waiting.shift()?.resolve(body);
  }

  exchange(frame) {
    this.socket.write(frame);
    return new Promise((resolve, reject) => this.waiting.push({ resolve, reject }));
  }

  async call(op, body) {
    const answer = await this.exchange(new Writer().int(++this.xid).int(OPS[op]).raw(Buffer.concat(body.parts)).frame());
    const error = answer.readInt32BE(12);
    if (error) throw Object.assign(new Error(op + " failed with " + error), { code: error });
    return answer.subarray(16);
  }

  // flags: 1 ephemeral, 2 sequential. The path that it got.
  async create(path, data = "", flags = 0, acl = ["world", "anyone", 31]) {
    const body = new Writer().bytes(path).bytes(data).int(1).int(acl[2]).bytes(acl[0]).bytes(acl[1]).int(flags);
    const answer = await this.call("create", body);
    return answer.subarray(4, 4 + answer.readInt32BE(0)).toString();
  }

  async createAll(path) {
    const parts = path.split("/").slice(1);
    for (let depth = 1; depth <= parts.length; depth++) {
      await this.create("/" + parts.slice(0, depth).join("/")).catch(error => { if (error.code !== -110) throw error; });
    }
  }

  async watch(path) { await this.call("getData", new Writer().bytes(path).bool(true)); }
  async delete(path) { await this.call("delete", new Writer().bytes(path).int(-1)); }

  // Enters the queue of a lock as kazoo does, and watches the one in front.
  async enter(directory, name, before) {
    const node = await this.create(directory + "/" + randomHex() + "__lock__", name, 3);
    if (before) await this.watch(before);
    return node;
  }

  async close() {
    clearInterval(this.pings);
    await this.call("close", new Writer()).catch(() => {});
    this.socket.destroy();
  }

  // As a client that dies: its session expires.
  die() { clearInterval(this.pings); this.socket.destroy(); }
}

function randomHex() {
  let text = "";
  for (let digit = 0; digit < 32; digit++) text += digit === 12 ? "4" : Math.floor(Math.random() * 16).toString(16);
  return text;
}
