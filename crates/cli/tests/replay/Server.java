// A server with the defaults of the JDK.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.Executors;

class Server {
    public static void main(String[] args) throws Exception {
        byte[] large = "0123456789abcdef".repeat(1 << 16).getBytes();
        var server = HttpServer.create(new InetSocketAddress(Integer.parseInt(args[0])), 0);
        server.createContext("/", exchange -> {
            byte[] body = exchange.getRequestBody().readAllBytes();
            byte[] answer = exchange.getRequestURI().getPath().equals("/1m") ? large : body;
            var client = exchange.getRemoteAddress().getAddress().getHostAddress().split("%")[0];
            exchange.getResponseHeaders().set("x-client", client);
            exchange.sendResponseHeaders(200, answer.length == 0 ? -1 : answer.length);
            try (var out = exchange.getResponseBody()) {
                if (answer.length > 0) out.write(answer);
            }
        });
        server.setExecutor(Executors.newCachedThreadPool());
        server.start();
    }
}
