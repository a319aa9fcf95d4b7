import com.siemens.pki.cmpracomponent.configuration.SignatureCredentialContext;
import com.siemens.pki.cmpracomponent.msggeneration.PkiMessageGenerator;
import com.siemens.pki.cmpracomponent.protection.ProtectionProvider;
import com.siemens.pki.cmpracomponent.protection.ProtectionProviderFactory;
import java.math.BigInteger;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.PrivateKey;
import java.security.SecureRandom;
import java.security.cert.X509Certificate;
import java.security.spec.ECGenParameterSpec;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.bouncycastle.asn1.ASN1ObjectIdentifier;
import org.bouncycastle.asn1.cmp.CMPCertificate;
import org.bouncycastle.asn1.cmp.CMPObjectIdentifiers;
import org.bouncycastle.asn1.cmp.CertConfirmContent;
import org.bouncycastle.asn1.cmp.CertOrEncCert;
import org.bouncycastle.asn1.cmp.CertRepMessage;
import org.bouncycastle.asn1.cmp.CertResponse;
import org.bouncycastle.asn1.cmp.CertStatus;
import org.bouncycastle.asn1.cmp.CertifiedKeyPair;
import org.bouncycastle.asn1.cmp.PKIBody;
import org.bouncycastle.asn1.cmp.PKIFailureInfo;
import org.bouncycastle.asn1.cmp.PKIMessage;
import org.bouncycastle.asn1.cmp.PKIStatus;
import org.bouncycastle.asn1.cmp.PKIStatusInfo;
import org.bouncycastle.asn1.crmf.AttributeTypeAndValue;
import org.bouncycastle.asn1.crmf.CertId;
import org.bouncycastle.asn1.crmf.CertReqMessages;
import org.bouncycastle.asn1.crmf.CertRequest;
import org.bouncycastle.asn1.crmf.CertTemplate;
import org.bouncycastle.asn1.crmf.Controls;
import org.bouncycastle.asn1.pkcs.CertificationRequest;
import org.bouncycastle.asn1.x500.X500Name;
import org.bouncycastle.asn1.x509.BasicConstraints;
import org.bouncycastle.asn1.x509.Extension;
import org.bouncycastle.asn1.x509.Extensions;
import org.bouncycastle.asn1.x509.KeyUsage;
import org.bouncycastle.asn1.x509.SubjectPublicKeyInfo;
import org.bouncycastle.cert.X509CertificateHolder;
import org.bouncycastle.cert.X509v3CertificateBuilder;
import org.bouncycastle.cert.jcajce.JcaX509CertificateConverter;
import org.bouncycastle.cert.jcajce.JcaX509ExtensionUtils;
import org.bouncycastle.operator.jcajce.JcaContentSignerBuilder;
import org.bouncycastle.pkcs.PKCS10CertificationRequest;

/** The CA behind the RA: a root, and "issuing" below it, which gives to everybody what the RA has let through. */
final class Ca {
    /** A key with its certificate, and those that lead to the root, which is the last. */
    record Pair(KeyPair keys, List<X509Certificate> chain) implements SignatureCredentialContext {
        @Override
        public List<X509Certificate> getCertificateChain() {
            return chain;
        }

        @Override
        public PrivateKey getPrivateKey() {
            return keys.getPrivate();
        }

        X509Certificate root() {
            return chain.get(chain.size() - 1);
        }
    }

    private static final Duration SKEW = Duration.ofHours(1);
    private static final Duration LIFETIME = Duration.ofDays(30);

    private final Pair issuing;
    private final ProtectionProvider protection;
    /** Who has which serial number. */
    private final Map<BigInteger, X500Name> issued = new ConcurrentHashMap<>();

    Ca() throws Exception {
        issuing = pair("CN=issuing", pair("CN=root", null, true), true);
        protection = ProtectionProviderFactory.createProtectionProvider(issuing, "CA");
    }

    X509Certificate root() {
        return issuing.root();
    }

    /** A pair for somebody who is no CA. */
    Pair pairFor(String name) throws Exception {
        return pair(name, issuing, false);
    }

    /** The answer to a message, of which one line is added to what was seen. */
    PKIMessage answer(PKIMessage message, List<String> seen) throws Exception {
        PKIBody body = message.getBody();
        return switch (body.getType()) {
            case PKIBody.TYPE_INIT_REQ -> {
                seen.add("ir");
                yield certified(message, PKIBody.TYPE_INIT_REP, issue(requested(body).getCertTemplate()));
            }
            case PKIBody.TYPE_KEY_UPDATE_REQ -> {
                seen.add("kur");
                CertRequest requested = requested(body);
                yield isRenewal(requested)
                        ? certified(message, PKIBody.TYPE_KEY_UPDATE_REP, issue(requested.getCertTemplate()))
                        : respond(message, refusal(PKIFailureInfo.badCertId, "nobody has the old certificate"));
            }
            case PKIBody.TYPE_P10_CERT_REQ -> {
                seen.add("p10cr");
                var request = new PKCS10CertificationRequest((CertificationRequest) body.getContent());
                yield certified(message, PKIBody.TYPE_CERT_REP, issue(request));
            }
            case PKIBody.TYPE_CERT_CONFIRM -> {
                CertStatus status = ((CertConfirmContent) body.getContent()).toCertStatusArray()[0];
                seen.add(told(status.getStatusInfo()));
                yield respond(message, PkiMessageGenerator.generatePkiConfirmBody());
            }
            default -> respond(message, refusal(PKIFailureInfo.badRequest, "no certificate is asked for"));
        };
    }

    private static String told(PKIStatusInfo status) {
        if (status == null || status.getStatus().intValue() == PKIStatus.GRANTED) {
            return "confirmed";
        }
        return "rejected: " + status.getStatusString().getStringAtUTF8(0).getString();
    }

    private static CertRequest requested(PKIBody body) {
        return ((CertReqMessages) body.getContent()).toCertReqMsgArray()[0].getCertReq();
    }

    /** Whether a request names a certificate of this CA that has the same subject (RFC 9483 section 4.1.3). */
    private boolean isRenewal(CertRequest requested) {
        Controls controls = requested.getControls();
        if (controls == null) {
            return false;
        }
        return Arrays.stream(controls.toAttributeTypeAndValueArray())
                .filter(control -> CMPObjectIdentifiers.regCtrl_oldCertID.equals(control.getType()))
                .map(AttributeTypeAndValue::getValue)
                .map(CertId::getInstance)
                .filter(old -> name(issuing).equals(old.getIssuer().getName()))
                .map(old -> issued.get(old.getSerialNumber().getValue()))
                .anyMatch(subject -> requested.getCertTemplate().getSubject().equals(subject));
    }

    private X509CertificateHolder issue(CertTemplate template) throws Exception {
        return issue(template.getSubject(), template.getPublicKey(), template.getExtensions());
    }

    private X509CertificateHolder issue(PKCS10CertificationRequest request) throws Exception {
        return issue(
                request.getSubject(), request.getSubjectPublicKeyInfo(), request.getRequestedExtensions());
    }

    private X509CertificateHolder issue(X500Name subject, SubjectPublicKeyInfo key, Extensions wanted)
            throws Exception {
        X509CertificateHolder certificate = sign(issuing.keys(), name(issuing), subject, key, wanted);
        issued.put(certificate.getSerialNumber(), subject);
        return certificate;
    }

    private PKIMessage certified(PKIMessage request, int type, X509CertificateHolder certificate) throws Exception {
        CMPCertificate[] roots = {new CMPCertificate(new X509CertificateHolder(root().getEncoded()).toASN1Structure())};
        var certified = new CertifiedKeyPair(new CertOrEncCert(new CMPCertificate(certificate.toASN1Structure())));
        CertResponse[] responses = {
            new CertResponse(PkiMessageGenerator.CERT_REQ_ID_0, new PKIStatusInfo(PKIStatus.granted), certified, null)
        };
        // Only an answer to a first request brings roots (RFC 9483 section 4.1.1).
        var answer = new CertRepMessage(type == PKIBody.TYPE_INIT_REP ? roots : null, responses);
        return respond(request, new PKIBody(type, answer));
    }

    private static PKIBody refusal(int failure, String reason) {
        return PkiMessageGenerator.generateErrorBody(failure, reason);
    }

    private PKIMessage respond(PKIMessage request, PKIBody body) throws Exception {
        return PkiMessageGenerator.generateAndProtectMessage(
                PkiMessageGenerator.buildRespondingHeaderProvider(request), protection, body);
    }

    private static X500Name name(Pair pair) {
        return X500Name.getInstance(pair.chain().get(0).getSubjectX500Principal().getEncoded());
    }

    private static Pair pair(String name, Pair issuer, boolean isCa) throws Exception {
        var generator = KeyPairGenerator.getInstance("EC");
        generator.initialize(new ECGenParameterSpec("secp256r1"));
        KeyPair keys = generator.generateKeyPair();
        int usage = KeyUsage.digitalSignature | (isCa ? KeyUsage.keyCertSign : 0);
        Extension[] extensions = {
            Extension.create(Extension.basicConstraints, true, new BasicConstraints(isCa)),
            Extension.create(Extension.keyUsage, true, new KeyUsage(usage))
        };
        X500Name subject = new X500Name(name);
        KeyPair by = issuer == null ? keys : issuer.keys();
        X509CertificateHolder signed = sign(
                by,
                issuer == null ? subject : name(issuer),
                subject,
                SubjectPublicKeyInfo.getInstance(keys.getPublic().getEncoded()),
                new Extensions(extensions));
        var chain = new ArrayList<X509Certificate>();
        chain.add(new JcaX509CertificateConverter().getCertificate(signed));
        chain.addAll(issuer == null ? List.of() : issuer.chain());
        return new Pair(keys, List.copyOf(chain));
    }

    private static X509CertificateHolder sign(
            KeyPair by, X500Name issuer, X500Name subject, SubjectPublicKeyInfo key, Extensions extensions)
            throws Exception {
        Instant now = Instant.now();
        var builder = new X509v3CertificateBuilder(
                issuer,
                new BigInteger(120, new SecureRandom()),
                Date.from(now.minus(SKEW)),
                Date.from(now.plus(LIFETIME)),
                subject,
                key);
        var identifiers = new JcaX509ExtensionUtils();
        builder.addExtension(Extension.subjectKeyIdentifier, false, identifiers.createSubjectKeyIdentifier(key));
        builder.addExtension(
                Extension.authorityKeyIdentifier, false, identifiers.createAuthorityKeyIdentifier(by.getPublic()));
        for (var identifier : extensions == null ? new ASN1ObjectIdentifier[0] : extensions.getExtensionOIDs()) {
            builder.addExtension(extensions.getExtension(identifier));
        }
        return builder.build(new JcaContentSignerBuilder("SHA256withECDSA").build(by.getPrivate()));
    }
}
