// undici with one connection and up to ten requests on it at a time: fetches every URL of a list and compares every
// byte.
//
// The list's lines are a URL and the file that must come. Says how many were right.

const fs = require("fs");
const { Client } = require("undici");

const gets = fs.readFileSync(process.argv[2], "utf8").trim().split("\n").map((line) => line.split(" "));
const client = new Client(new URL(gets[0][0]).origin, { pipelining: 10, headersTimeout: 10000, bodyTimeout: 10000 });

async function fetch([url, path]) {
  const { statusCode, body } = await client.request({ method: "GET", path: new URL(url).pathname });
  const got = Buffer.from(await body.arrayBuffer());
  const wanted = fs.readFileSync(path);
  if (statusCode !== 200 || !got.equals(wanted)) {
    const at = got.findIndex((byte, index) => byte !== wanted[index]);
    throw new Error(`${url}: ${statusCode}, ${got.length} bytes for ${wanted.length}, wrong from ${at} on`);
  }
}

async function main() {
  await Promise.all(gets.map(fetch));
  await client.close();
  console.log(gets.length);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
