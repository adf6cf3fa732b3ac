// Node's https or http2, or undici: makes every request of a list and compares every byte.
//
// The list's lines are a method, a URL and the file that must come, or that is sent. Says how many were right.

const fs = require("fs");
const http2 = require("http2");
const https = require("https");

const [which, vip, authority, list] = process.argv.slice(2);
const transfers = fs.readFileSync(list, "utf8").trim().split("\n").map((line) => line.split(" "));
const origin = new URL(transfers[0][1]).origin;
const ca = fs.readFileSync(authority);
const lookup = (_, options, found) => (options.all ? found(null, [{ address: vip, family: 4 }]) : found(null, vip, 4));

async function bytes(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts);
}

function overHttps(maxSockets) {
  const agent = new https.Agent({ ca, lookup, keepAlive: true, maxSockets });
  const ask = (method, path, body) =>
    new Promise((resolve, reject) => {
      const request = https.request(origin + path, { agent, method }, async (response) => {
        resolve([response.statusCode, await bytes(response)]);
      });
      request.on("error", reject);
      request.end(body);
    });
  return [ask, () => agent.destroy()];
}

// Each is how to make a request, which gives status and body, and how to end.
const clients = {
  "https": () => overHttps(4),
  "https-alone": () => overHttps(1),
  http2() {
    const session = http2.connect(origin, { ca, lookup });
    const ask = (method, path, body) =>
      new Promise((resolve, reject) => {
        const request = session.request({ ":method": method, ":path": path });
        request.on("error", reject);
        request.on("response", async (head) => resolve([head[":status"], await bytes(request)]));
        request.end(body);
      });
    return [ask, () => session.close()];
  },
  undici() {
    const { Client } = require("undici");
    const client = new Client(origin, { connect: { ca, lookup }, pipelining: 10 });
    const ask = async (method, path, body) => {
      const { statusCode, body: answer } = await client.request({ method, path, body });
      return [statusCode, await bytes(answer)];
    };
    return [ask, () => client.close()];
  },
};

async function main() {
  const [ask, end] = clients[which]();
  const transfer = async ([method, url, path]) => {
    const document = fs.readFileSync(path);
    const isPut = method === "PUT";
    const [status, got] = await ask(method, new URL(url).pathname, isPut ? document : undefined);
    if (isPut ? status !== 201 : status !== 200 || !got.equals(document)) {
      throw new Error(`${method} ${url}: ${status}, or wrong bytes`);
    }
  };
  await Promise.all(transfers.map(transfer));
  await end();
  console.log(transfers.length);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
