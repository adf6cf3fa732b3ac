// Says in X-Saw which host and path it was asked for.
const http = require('http');

const server = http.createServer((request, response) => {
  request.resume();
  request.on('end', () => {
    const path = request.url.split('?')[0];
    response.setHeader('X-Saw', `${request.headers.host ?? ''}|${path}`);
    response.end();
  });
});
server.keepAliveTimeout = 60000;
server.listen(Number(process.argv[2]), '127.0.0.1');
