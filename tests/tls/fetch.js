// Node's https or http2, or undici: fetches every URL of a list and compares every byte.
//
// The list's lines are a URL and the file that must come. Says how many were right.

const fs = require("fs");
const http2 = require("http2");
const https = require("https");

const [which, vip, authority, list] = process.argv.slice(2);
const gets = fs.readFileSync(list, "utf8").trim().split("\n").map((line) => line.split(" "));
const origin = new URL(gets[0][0]).origin;
const ca = fs.readFileSync(authority);
const lookup = (_, options, found) => (options.all ? found(null, [{ address: vip, family: 4 }]) : found(null, vip, 4));

async function bytes(stream) {
  const parts = [];
  for await (const part of stream) parts.push(part);
  return Buffer.concat(parts);
}

// Each is how to fetch a path, which gives status and body, and how to end.
const clients = {
  https() {
    const agent = new https.Agent({ ca, lookup, keepAlive: true, maxSockets: 4 });
    const get = (path) =>
      new Promise((resolve, reject) => {
        const request = https.get(origin + path, { agent }, async (response) => {
          resolve([response.statusCode, await bytes(response)]);
        });
        request.on("error", reject);
      });
    return [get, () => agent.destroy()];
  },
  http2() {
    const session = http2.connect(origin, { ca, lookup });
    const get = (path) =>
      new Promise((resolve, reject) => {
        const request = session.request({ ":path": path });
        request.on("error", reject);
        request.on("response", async (head) => resolve([head[":status"], await bytes(request)]));
      });
    return [get, () => session.close()];
  },
  undici() {
    const { Client } = require("undici");
    const client = new Client(origin, { connect: { ca, lookup }, pipelining: 10 });
    const get = async (path) => {
      const { statusCode, body } = await client.request({ method: "GET", path });
      return [statusCode, await bytes(body)];
    };
    return [get, () => client.close()];
  },
};

async function main() {
  const [get, end] = clients[which]();
  const fetch = async ([url, path]) => {
    const [status, body] = await get(new URL(url).pathname);
    if (status !== 200 || !body.equals(fs.readFileSync(path))) throw new Error(`${url}: ${status}, or wrong bytes`);
  };
  await Promise.all(gets.map(fetch));
  await end();
  console.log(gets.length);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
