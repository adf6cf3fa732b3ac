import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.URLEncoder;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.buf.EncodedSolidusHandling;

/** Says in X-Saw which host and path it was asked for: what is compared with the patterns of servlets. */
public class Tomcat10 {
    static class Answer extends HttpServlet {
        @Override
        protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
            request.getInputStream().readAllBytes();
            String host = request.getHeader("Host");
            String path = String.valueOf(request.getServletPath());
            String encoded = URLEncoder.encode(path, "UTF-8").replace("+", "%20").replace("%2F", "/");
            response.setHeader("X-Saw", (host == null ? "" : host) + "|" + encoded);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(arguments[1]);
        tomcat.setPort(Integer.parseInt(arguments[0]));
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        tomcat.getConnector().setProperty("relaxedPathChars", "[]^`{|}");
        tomcat.getConnector().setProperty("relaxedQueryChars", "[]^`{|}\\");
        tomcat.getConnector().setProperty("maxKeepAliveRequests", "-1");
        tomcat.getConnector().setEncodedSolidusHandling(EncodedSolidusHandling.DECODE.getValue());
        var context = tomcat.addContext("", arguments[1]);
        Tomcat.addServlet(context, "answer", new Answer());
        context.addServletMappingDecoded("/", "answer");
        tomcat.start();
        tomcat.getServer().await();
    }
}
