import java.io.IOException;
import javax.servlet.http.HttpServletRequest;
import javax.servlet.http.HttpServletResponse;
import org.eclipse.jetty.server.Request;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.server.handler.AbstractHandler;
import org.eclipse.jetty.util.URIUtil;

/** Says in X-Saw which host and path it was asked for: what is compared with the patterns of servlets. */
public class Jetty9 {
    static class Answer extends AbstractHandler {
        @Override
        public void handle(String target, Request base, HttpServletRequest request, HttpServletResponse response)
                throws IOException {
            request.getInputStream().readAllBytes();
            String host = request.getHeader("Host");
            response.setHeader("X-Saw", (host == null ? "" : host) + "|" + URIUtil.encodePath(target));
            base.setHandled(true);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Server server = new Server();
        ServerConnector connector = new ServerConnector(server);
        connector.setHost("127.0.0.1");
        connector.setPort(Integer.parseInt(arguments[0]));
        server.addConnector(connector);
        server.setHandler(new Answer());
        server.start();
        server.join();
    }
}
