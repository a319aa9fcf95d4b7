import com.siemens.pki.cmpracomponent.configuration.CheckAndModifyResult;
import com.siemens.pki.cmpracomponent.configuration.CkgContext;
import com.siemens.pki.cmpracomponent.configuration.CmpMessageInterface;
import com.siemens.pki.cmpracomponent.configuration.Configuration;
import com.siemens.pki.cmpracomponent.configuration.CredentialContext;
import com.siemens.pki.cmpracomponent.configuration.InventoryInterface;
import com.siemens.pki.cmpracomponent.configuration.NestedEndpointContext;
import com.siemens.pki.cmpracomponent.configuration.SharedSecretCredentialContext;
import com.siemens.pki.cmpracomponent.configuration.SupportMessageHandlerInterface;
import com.siemens.pki.cmpracomponent.configuration.VerificationContext;
import com.siemens.pki.cmpracomponent.main.CmpRaComponent;
import com.siemens.pki.cmpracomponent.main.CmpRaComponent.CmpRaInterface;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.OutputStreamWriter;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.cert.X509Certificate;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executors;
import org.bouncycastle.asn1.cmp.PKIBody;
import org.bouncycastle.asn1.cmp.PKIMessage;
import org.bouncycastle.openssl.jcajce.JcaPEMWriter;

/**
 * A registration authority by Siemens' CMP RA component, for the tests of `cmp enroll`: it holds requests against the
 * protocol, and protects what the CA in `Ca.java` answers.
 *
 * <p>`Ra REFERENCE PASSWORD` listens on the loopback interface, prints its address and then its root in PEM, and ends
 * with its standard input. Each path is an RA of its own; how it answers is the path's first part, a {@link Manner}.
 * GET of the same path has what its CA has seen, a line each.
 */
final class Ra {
    /** How an RA answers. */
    enum Manner {
        /** By the MAC of RFC 4210 that a password makes, which is what requests have. */
        PASSWORD,
        /** By the MAC of RFC 8018, which is the component's own choice. */
        PBMAC1,
        /** By signatures of "ra". */
        SIGNED,
        /** By a password, and not before it was asked again. */
        LATER;

        static Manner of(String path) {
            return valueOf(path.split("/")[1].toUpperCase());
        }
    }

    private static final String MESSAGE = "application/pkixcmp";
    /** Whom the RA does not know. */
    private static final String STRANGER = "CN=stranger";
    private static final int ALLOWED_DEVIATION_SECONDS = 300;
    private static final int TRANSACTION_SECONDS = 600;

    private final Manner manner;
    private final Common common;
    private final CmpRaInterface component;
    private final List<String> seen = new CopyOnWriteArrayList<>();
    /** What the CA answers, once it is asked for again. */
    private byte[] held;

    /** What all have in common. */
    private record Common(Ca ca, Ca.Pair signer, byte[] reference, byte[] password) {}

    private Ra(Manner manner, Common common) {
        this.manner = manner;
        this.common = common;
        try {
            component = CmpRaComponent.instantiateCmpRaComponent(new Settings(), this::askCa);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var ca = new Ca();
        var common = new Common(
                ca,
                ca.pairFor("CN=ra"),
                arguments[0].getBytes(StandardCharsets.UTF_8),
                arguments[1].getBytes(StandardCharsets.UTF_8));
        Map<String, Ra> authorities = new ConcurrentHashMap<>();
        var server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", exchange -> {
            String path = exchange.getRequestURI().getPath();
            authorities.computeIfAbsent(path, it -> new Ra(Manner.of(it), common)).handle(exchange);
        });
        server.start();
        InetSocketAddress address = server.getAddress();
        System.out.println(address.getAddress().getHostAddress() + ":" + address.getPort());
        var writer = new JcaPEMWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        writer.writeObject(ca.root());
        writer.flush();
        System.in.readAllBytes();
        System.exit(0);
    }

    private void handle(HttpExchange exchange) throws IOException {
        if (exchange.getRequestMethod().equals("GET")) {
            send(exchange, 200, String.join("\n", seen).getBytes(StandardCharsets.UTF_8));
        } else if (MESSAGE.equals(exchange.getRequestHeaders().getFirst("Content-Type"))) {
            byte[] answer = answer(exchange.getRequestBody().readAllBytes());
            exchange.getResponseHeaders().set("Content-Type", MESSAGE);
            send(exchange, 200, answer);
        } else {
            send(exchange, 415, new byte[0]);
        }
    }

    private static void send(HttpExchange exchange, int status, byte[] body) throws IOException {
        // A length of 0 would say that the length is not known.
        exchange.sendResponseHeaders(status, body.length == 0 ? -1 : body.length);
        if (body.length > 0) {
            exchange.getResponseBody().write(body);
        }
        exchange.close();
    }

    private synchronized byte[] answer(byte[] request) throws IOException {
        try {
            byte[] answer = component.processRequest(request);
            boolean isPoll = PKIMessage.getInstance(request).getBody().getType() == PKIBody.TYPE_POLL_REQ;
            if (isPoll && held != null) {
                component.gotResponseAtUpstream(held);
                held = null;
            }
            return answer;
        } catch (Exception error) {
            throw new IOException(error);
        }
    }

    /** `null` says that the answer comes later. */
    private byte[] askCa(byte[] request, String profile, int type) throws Exception {
        byte[] answer = common.ca.answer(PKIMessage.getInstance(request), seen).getEncoded();
        if (manner == Manner.LATER) {
            held = answer;
            return null;
        }
        return answer;
    }

    /** How the component deals with its clients, and with the CA. */
    private final class Settings implements Configuration {
        @Override
        public CmpMessageInterface getDownstreamConfiguration(String profile, int type) {
            return new Side(manner == Manner.SIGNED ? common.signer : new Password());
        }

        @Override
        public CmpMessageInterface getUpstreamConfiguration(String profile, int type) {
            return new Side(null);
        }

        @Override
        public VerificationContext getEnrollmentTrust(String profile, int type) {
            return new Trust();
        }

        @Override
        public InventoryInterface getInventory(String profile, int type) {
            return new Known();
        }

        @Override
        public int getDownstreamTimeout(String profile, int type) {
            return TRANSACTION_SECONDS;
        }

        @Override
        public int getRetryAfterTimeInSeconds(String profile, int type) {
            return 1;
        }

        @Override
        public boolean getForceRaVerifyOnUpstream(String profile, int type) {
            return false;
        }

        @Override
        public boolean isRaVerifiedAcceptable(String profile, int type) {
            return false;
        }

        @Override
        public CkgContext getCkgConfiguration(String profile, int type) {
            return null;
        }

        @Override
        public SupportMessageHandlerInterface getSupportMessageHandler(String profile, String infoType) {
            return null;
        }
    }

    /** Messages from one side, and to it, protected by these credentials or not at all. */
    private final class Side implements CmpMessageInterface {
        private final CredentialContext credentials;

        Side(CredentialContext credentials) {
            this.credentials = credentials;
        }

        @Override
        public VerificationContext getInputVerification() {
            return new Trust();
        }

        @Override
        public CredentialContext getOutputCredentials() {
            return credentials;
        }

        @Override
        public ReprotectMode getReprotectMode() {
            return credentials == null ? ReprotectMode.strip : ReprotectMode.reprotect;
        }

        @Override
        public NestedEndpointContext getNestedEndpointContext() {
            return null;
        }

        @Override
        public boolean getSuppressRedundantExtraCerts() {
            return false;
        }

        @Override
        public boolean isCacheExtraCerts() {
            return false;
        }

        @Override
        public boolean isMessageTimeDeviationAllowed(long seconds) {
            return Math.abs(seconds) <= ALLOWED_DEVIATION_SECONDS;
        }
    }

    /** The password by its reference alone, and the CA's certificates. */
    private final class Trust implements VerificationContext {
        @Override
        public byte[] getSharedSecret(byte[] reference) {
            return Arrays.equals(reference, common.reference) ? common.password : null;
        }

        @Override
        public Collection<X509Certificate> getTrustedCertificates() {
            return List.of(common.ca.root());
        }
    }

    private final class Password implements SharedSecretCredentialContext {
        @Override
        public byte[] getSharedSecret() {
            return common.password;
        }

        @Override
        public String getPasswordBasedMacAlgorithm() {
            return manner == Manner.PBMAC1 ? "PBMAC1" : "PasswordBasedMac";
        }
    }

    /** Everybody but strangers. */
    private static final class Known implements InventoryInterface {
        @Override
        public CheckAndModifyResult checkAndModifyCertRequest(
                byte[] transaction, String requester, byte[] template, String subject, byte[] message) {
            return new CheckAndModifyResult() {
                @Override
                public byte[] getUpdatedCertTemplate() {
                    return null;
                }

                @Override
                public boolean isGranted() {
                    return !STRANGER.equals(subject);
                }
            };
        }

        @Override
        public boolean checkP10CertRequest(
                byte[] transaction, String requester, byte[] request, String subject, byte[] message) {
            return !STRANGER.equals(subject);
        }
    }
}
