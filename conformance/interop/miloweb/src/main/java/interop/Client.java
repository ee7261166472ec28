package interop;

import static org.eclipse.milo.opcua.stack.core.types.builtin.unsigned.Unsigned.uint;

import java.io.InputStream;
import java.lang.reflect.Array;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyPair;
import java.security.PrivateKey;
import java.security.Security;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.logging.LogManager;
import org.bouncycastle.jce.provider.BouncyCastleProvider;
import org.eclipse.milo.opcua.sdk.client.OpcUaClient;
import org.eclipse.milo.opcua.sdk.client.api.config.OpcUaClientConfig;
import org.eclipse.milo.opcua.sdk.client.api.identity.AnonymousProvider;
import org.eclipse.milo.opcua.sdk.client.api.identity.IdentityProvider;
import org.eclipse.milo.opcua.sdk.client.api.identity.UsernameProvider;
import org.eclipse.milo.opcua.sdk.client.api.identity.X509IdentityProvider;
import org.eclipse.milo.opcua.sdk.client.api.subscriptions.UaSubscription;
import org.eclipse.milo.opcua.stack.client.DiscoveryClient;
import org.eclipse.milo.opcua.stack.core.AttributeId;
import org.eclipse.milo.opcua.stack.core.types.builtin.ByteString;
import org.eclipse.milo.opcua.stack.core.types.builtin.DataValue;
import org.eclipse.milo.opcua.stack.core.types.builtin.LocalizedText;
import org.eclipse.milo.opcua.stack.core.types.builtin.NodeId;
import org.eclipse.milo.opcua.stack.core.types.builtin.QualifiedName;
import org.eclipse.milo.opcua.stack.core.types.builtin.StatusCode;
import org.eclipse.milo.opcua.stack.core.types.builtin.Variant;
import org.eclipse.milo.opcua.stack.core.types.builtin.unsigned.UInteger;
import org.eclipse.milo.opcua.stack.core.types.enumerated.BrowseDirection;
import org.eclipse.milo.opcua.stack.core.types.enumerated.MonitoringMode;
import org.eclipse.milo.opcua.stack.core.types.enumerated.TimestampsToReturn;
import org.eclipse.milo.opcua.stack.core.types.enumerated.UserTokenType;
import org.eclipse.milo.opcua.stack.core.types.structured.BrowseDescription;
import org.eclipse.milo.opcua.stack.core.types.structured.BrowseResult;
import org.eclipse.milo.opcua.stack.core.types.structured.CallMethodRequest;
import org.eclipse.milo.opcua.stack.core.types.structured.CallMethodResult;
import org.eclipse.milo.opcua.stack.core.types.structured.EndpointDescription;
import org.eclipse.milo.opcua.stack.core.types.structured.MonitoredItemCreateRequest;
import org.eclipse.milo.opcua.stack.core.types.structured.MonitoringParameters;
import org.eclipse.milo.opcua.stack.core.types.structured.ReadValueId;
import org.eclipse.milo.opcua.stack.core.types.structured.ReferenceDescription;
import org.eclipse.milo.opcua.stack.core.types.structured.UserTokenPolicy;
import org.eclipse.milo.opcua.stack.core.util.EndpointUtil;

/**
 * Runs a part of the interop scenario over the transport that --endpoint names. Arguments and
 * output are described in ../doc.go: flags in, JSON lines out.
 */
public final class Client {
  private static final NodeId STATE = NodeId.parse("i=2259");
  private static final UInteger PATIENCE = uint(30_000); // a busy machine loads classes slowly

  private final Map<String, String> args = new HashMap<>();
  private final List<String> items = new ArrayList<>();
  private List<EndpointDescription> endpoints;

  public static void main(String[] argv) throws Exception {
    LogManager.getLogManager().reset(); // Milo has Netty log every byte of a WebSocket
    Security.addProvider(new BouncyCastleProvider()); // RSA-PSS by the name Milo asks for
    Client client = new Client();
    for (int i = 0; i + 1 < argv.length; i += 2) {
      client.args.put(argv[i].substring(2), argv[i + 1]);
    }
    System.exit(client.run() ? 0 : 1);
  }

  private boolean run() {
    boolean good = true;
    for (String step : args.get("steps").split(",")) {
      items.clear();
      long begun = System.nanoTime();
      try {
        switch (step) {
          case "discovery" -> discovery();
          case "security" -> security();
          case "values" -> values();
          case "browse" -> browse();
          case "calls" -> calls();
          case "subscription" -> subscription();
          default -> throw new IllegalArgumentException("unknown step " + step);
        }
        emit(step, true, (System.nanoTime() - begun) / 1_000_000 + " ms");
      } catch (Throwable e) {
        good = false;
        e.printStackTrace();
        emit(step, false, e.toString());
      }
    }
    return good;
  }

  private void discovery() throws Exception {
    // FindServers Milo asks over opc.tcp, whatever the URL.
    for (EndpointDescription e : endpoints()) {
      items.add(name(e));
    }
  }

  private void security() throws Exception {
    for (EndpointDescription e : endpoints()) {
      Set<UserTokenType> seen = new HashSet<>();
      for (UserTokenPolicy token : e.getUserIdentityTokens()) {
        if (!seen.add(token.getTokenType()) || name(e).equals("None/None") && token.getTokenType() == UserTokenType.Certificate) {
          continue; // Milo takes the first policy of a type, and signs user certificates with the channel's only
        }
        String name = name(e) + "/" + token.getTokenType();
        try {
          OpcUaClient client = connect(e, token.getTokenType(), args.get("password"));
          try {
            Object state = read(client, STATE).getValue();
            check(Integer.valueOf(0).equals(state), "server state " + state);
          } finally {
            client.disconnect();
          }
        } catch (Exception ex) {
          throw new Exception(name + ": " + ex, ex);
        }
        items.add(name);
      }
    }
    Exception refused = null;
    try {
      connect(endpoint("None/None"), UserTokenType.UserName, "wrong").disconnect();
    } catch (Exception e) {
      refused = e;
    }
    check(refused != null, "a wrong password was accepted");
    items.add("wrong password: " + refused.getMessage());
  }

  /** Reads each type, writes something else of it, reads that back and restores the first value. */
  private void values() throws Exception {
    OpcUaClient client = anonymous();
    try {
      for (String type : args.get("types").split(",")) {
        if (type.equals("Variant") || type.equals("DiagnosticInfo")) {
          continue; // a Variant is what all the others stand in; Milo's holds no DiagnosticInfo
        }
        Object array = read(client, node(client, "Array." + type)).getValue();
        check(array != null && array.getClass().isArray() && Array.getLength(array) >= 2, "array of " + type);
        NodeId id = node(client, "Scalar." + type);
        Variant old = read(client, id);
        for (Variant want : List.of(new Variant(Array.get(array, 1)), old)) {
          StatusCode status = get(client.writeValues(List.of(id), List.of(DataValue.valueOnly(want)))).get(0);
          check(status.isGood(), type + ": write: " + status);
          Variant got = read(client, id);
          check(Objects.deepEquals(got.getValue(), want.getValue()), type + ": wrote " + want + ", read " + got);
        }
        items.add("Scalar." + type);
      }
    } finally {
      client.disconnect();
    }
  }

  private void browse() throws Exception {
    OpcUaClient client = anonymous();
    try {
      Set<NodeId> seen = new HashSet<>();
      List<NodeId> level = new ArrayList<>(List.of(NodeId.parse("i=84")));
      seen.addAll(level);
      while (!level.isEmpty()) {
        List<NodeId> next = new ArrayList<>();
        for (int i = 0; i < level.size(); i += 100) {
          List<BrowseDescription> ask = new ArrayList<>();
          for (NodeId id : level.subList(i, Math.min(i + 100, level.size()))) {
            ask.add(new BrowseDescription(id, BrowseDirection.Forward, NodeId.parse("i=31"), true, uint(0), uint(63)));
          }
          for (BrowseResult result : get(client.browse(ask))) {
            collect(client, result, seen, next);
            for (ByteString more = result.getContinuationPoint(); more != null && more.isNotNull() && more.length() > 0; ) {
              BrowseResult page = get(client.browseNext(false, List.of(more))).getResults()[0];
              collect(client, page, seen, next);
              more = page.getContinuationPoint();
            }
          }
        }
        level = next;
      }
      items.add(seen.size() + " nodes");
      check(seen.size() > 1500, "only " + seen.size() + " nodes reachable from Root");
    } finally {
      client.disconnect();
    }
  }

  private static void collect(OpcUaClient client, BrowseResult result, Set<NodeId> seen, List<NodeId> next) {
    check(result.getStatusCode().isGood(), "browse: " + result.getStatusCode());
    if (result.getReferences() == null) {
      return;
    }
    for (ReferenceDescription ref : result.getReferences()) {
      ref.getNodeId().toNodeId(client.getNamespaceTable()).ifPresent(id -> {
        if (seen.add(id)) {
          next.add(id);
        }
      });
    }
  }

  private void calls() throws Exception {
    OpcUaClient client = anonymous();
    try {
      CallMethodResult sum = call(client, "Add", new Variant(1.5), new Variant(2.25));
      check(sum.getStatusCode().isGood() && sum.getOutputArguments()[0].getValue().equals(3.75), "Add: " + sum);
      StatusCode fail = call(client, "Fail").getStatusCode();
      check(fail.isBad(), "Fail succeeded");
      items.add("Fail: " + fail);
    } finally {
      client.disconnect();
    }
  }

  private CallMethodResult call(OpcUaClient client, String name, Variant... inputs) throws Exception {
    return get(client.call(new CallMethodRequest(node(client, "Methods"), node(client, "Methods." + name), inputs)));
  }

  private void subscription() throws Exception {
    OpcUaClient client = anonymous();
    try {
      List<Object> values = new CopyOnWriteArrayList<>();
      UaSubscription subscription = get(client.getSubscriptionManager().createSubscription(100.0));
      var what = new ReadValueId(node(client, "Simulation.Counter"), AttributeId.Value.uid(), null, QualifiedName.NULL_VALUE);
      var parameters = new MonitoringParameters(subscription.nextClientHandle(), 100.0, null, uint(10), true);
      var created = get(subscription.createMonitoredItems(TimestampsToReturn.Both,
          List.of(new MonitoredItemCreateRequest(what, MonitoringMode.Reporting, parameters)),
          (item, i) -> item.setValueConsumer(value -> values.add(value.getValue().getValue()))));
      check(created.get(0).getStatusCode().isGood(), "CreateMonitoredItems: " + created.get(0).getStatusCode());
      for (long until = System.nanoTime() + 30_000_000_000L; values.size() < 5; Thread.sleep(20)) {
        check(System.nanoTime() < until, values.size() + " values arrived");
      }
      get(client.getSubscriptionManager().deleteSubscription(subscription.getSubscriptionId()));
      items.add("values: " + values.subList(0, 5));
    } finally {
      client.disconnect();
    }
  }

  private OpcUaClient anonymous() throws Exception {
    return connect(endpoint("None/None"), UserTokenType.Anonymous, null);
  }

  private OpcUaClient connect(EndpointDescription e, UserTokenType identity, String password) throws Exception {
    IdentityProvider who = switch (identity) {
      case UserName -> new UsernameProvider(args.get("user"), password);
      case Certificate -> new X509IdentityProvider(certificate(args.get("user-cert")), key(args.get("user-key")));
      default -> new AnonymousProvider();
    };
    X509Certificate certificate = certificate(args.get("cert"));
    OpcUaClient client = OpcUaClient.create(OpcUaClientConfig.builder()
        .setApplicationName(LocalizedText.english("milo"))
        .setApplicationUri(args.get("application-uri"))
        .setCertificate(certificate)
        .setCertificateChain(new X509Certificate[] {certificate})
        .setKeyPair(new KeyPair(certificate.getPublicKey(), key(args.get("key"))))
        .setEndpoint(e)
        .setIdentityProvider(who)
        .setRequestTimeout(uint(15_000))
        .setAcknowledgeTimeout(PATIENCE)
        .build());
    try {
      get(client.connect());
    } catch (Exception ex) {
      client.disconnect();
      throw ex;
    }
    return client;
  }

  private List<EndpointDescription> endpoints() throws Exception {
    if (endpoints == null) {
      String url = args.get("endpoint");
      endpoints = new ArrayList<>();
      for (EndpointDescription e : get(DiscoveryClient.getEndpoints(url, b -> b.setAcknowledgeTimeout(PATIENCE)))) {
        if (e.getEndpointUrl().startsWith(EndpointUtil.getScheme(url) + ":") && e.getTransportProfileUri().endsWith("uabinary")) {
          endpoints.add(EndpointUtil.updateUrl(e, EndpointUtil.getHost(url), EndpointUtil.getPort(url)));
        }
      }
    }
    return endpoints;
  }

  private EndpointDescription endpoint(String name) throws Exception {
    return endpoints().stream().filter(e -> name(e).equals(name)).findFirst().orElseThrow();
  }

  private static String name(EndpointDescription e) {
    String uri = e.getSecurityPolicyUri();
    return uri.substring(uri.indexOf('#') + 1) + "/" + e.getSecurityMode();
  }

  private NodeId node(OpcUaClient client, String name) {
    return new NodeId(client.getNamespaceTable().getIndex(args.get("namespace")), "Demo." + name);
  }

  private static Variant read(OpcUaClient client, NodeId id) throws Exception {
    DataValue value = get(client.readValue(0, TimestampsToReturn.Both, id));
    check(value.getStatusCode().isGood(), id.toParseableString() + ": " + value.getStatusCode());
    return value.getValue();
  }

  /** Disconnecting is never waited for: over a WebSocket it takes Milo five seconds. */
  private static <T> T get(CompletableFuture<T> future) throws Exception {
    return future.get(30, TimeUnit.SECONDS);
  }

  private static X509Certificate certificate(String file) throws Exception {
    try (InputStream in = Files.newInputStream(Path.of(file))) {
      return (X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(in);
    }
  }

  private static PrivateKey key(String file) throws Exception {
    String pem = Files.readString(Path.of(file)).replaceAll("-----[^-]+-----", "").replaceAll("\\s", "");
    return KeyFactory.getInstance("RSA").generatePrivate(new PKCS8EncodedKeySpec(Base64.getDecoder().decode(pem)));
  }

  private static void check(boolean ok, String message) {
    if (!ok) {
      throw new AssertionError(message);
    }
  }

  private void emit(String step, boolean ok, String detail) {
    StringBuilder line = new StringBuilder("{\"step\":" + quote(step) + ",\"ok\":" + ok + ",\"detail\":" + quote(detail) + ",\"items\":[");
    for (int i = 0; i < items.size(); i++) {
      line.append(i > 0 ? "," : "").append(quote(items.get(i)));
    }
    System.out.println(line.append("]}"));
    System.out.flush();
  }

  private static String quote(String s) {
    StringBuilder out = new StringBuilder("\"");
    for (char c : String.valueOf(s).toCharArray()) {
      if (c == '"' || c == '\\') {
        out.append('\\').append(c);
      } else if (c < ' ') {
        out.append(String.format("\\u%04x", (int) c));
      } else {
        out.append(c);
      }
    }
    return out.append('"').toString();
  }
}
