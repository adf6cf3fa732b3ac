// A server with the defaults of Node.js.
import { createServer } from "node:http";

const large = "0123456789abcdef".repeat(1 << 16);
createServer((request, response) => {
  if (request.url === "/1m") return response.end(large);
  response.setHeader("x-client", request.socket.remoteAddress.replace("::ffff:", ""));
  request.pipe(response);
}).listen(Number(process.argv[2]));
