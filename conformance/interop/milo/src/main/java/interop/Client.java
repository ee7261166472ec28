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
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import org.bouncycastle.jce.provider.BouncyCastleProvider;
import org.eclipse.milo.opcua.sdk.client.DiscoveryClient;
import org.eclipse.milo.opcua.sdk.client.OpcUaClient;
import org.eclipse.milo.opcua.sdk.client.OpcUaClientConfig;
import org.eclipse.milo.opcua.sdk.client.identity.AnonymousProvider;
import org.eclipse.milo.opcua.sdk.client.identity.IdentityProvider;
import org.eclipse.milo.opcua.sdk.client.identity.UsernameProvider;
import org.eclipse.milo.opcua.sdk.client.identity.X509IdentityProvider;
import org.eclipse.milo.opcua.sdk.client.subscriptions.OpcUaMonitoredItem;
import org.eclipse.milo.opcua.sdk.client.subscriptions.OpcUaSubscription;
import org.eclipse.milo.opcua.stack.core.security.CertificateValidator;
import org.eclipse.milo.opcua.stack.core.types.builtin.ByteString;
import org.eclipse.milo.opcua.stack.core.types.builtin.DataValue;
import org.eclipse.milo.opcua.stack.core.types.builtin.LocalizedText;
import org.eclipse.milo.opcua.stack.core.types.builtin.Matrix;
import org.eclipse.milo.opcua.stack.core.types.builtin.NodeId;
import org.eclipse.milo.opcua.stack.core.types.builtin.StatusCode;
import org.eclipse.milo.opcua.stack.core.types.builtin.Variant;
import org.eclipse.milo.opcua.stack.core.types.enumerated.BrowseDirection;
import org.eclipse.milo.opcua.stack.core.types.enumerated.TimestampsToReturn;
import org.eclipse.milo.opcua.stack.core.types.enumerated.UserTokenType;
import org.eclipse.milo.opcua.stack.core.types.structured.BrowseDescription;
import org.eclipse.milo.opcua.stack.core.types.structured.BrowseResult;
import org.eclipse.milo.opcua.stack.core.types.structured.CallMethodRequest;
import org.eclipse.milo.opcua.stack.core.types.structured.CallMethodResult;
import org.eclipse.milo.opcua.stack.core.types.structured.EndpointDescription;
import org.eclipse.milo.opcua.stack.core.types.structured.ReferenceDescription;
import org.eclipse.milo.opcua.stack.core.types.structured.UserTokenPolicy;
import org.eclipse.milo.opcua.stack.core.util.EndpointUtil;

/**
 * Runs the interop scenario against one server. Arguments and output are described in ../doc.go:
 * flags in, JSON lines out.
 */
public final class Client {
  private static final NodeId STATE = NodeId.parse("i=2259");
  private static final NodeId TIME = NodeId.parse("i=2258");
  private static final String STRONGEST = "Aes256_Sha256_RsaPss/SignAndEncrypt";

  private final Map<String, String> args = new HashMap<>();
  private final List<String> items = new ArrayList<>();
  private List<EndpointDescription> endpoints;

  public static void main(String[] argv) throws Exception {
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
          case "renewal" -> renewal();
          case "reconnect" -> reconnect();
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
    var servers = DiscoveryClient.findServers(args.get("endpoint")).get(20, TimeUnit.SECONDS);
    check(!servers.isEmpty() && servers.get(0).getApplicationUri() != null, "FindServers found nobody");
    for (EndpointDescription e : endpoints()) {
      items.add(name(e));
    }
  }

  private void security() throws Exception {
    for (EndpointDescription e : endpoints()) {
      for (UserTokenPolicy token : e.getUserIdentityTokens()) {
        String identity = token.getTokenType().toString();
        String name = name(e) + "/" + identity;
        if (name(e).equals("None/None") && token.getTokenType() == UserTokenType.Certificate) {
          continue; // Milo signs user certificates with the channel's policy only
        }
        try {
          OpcUaClient client = connect(e, identity, args.get("password"), 3_600_000);
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
      connect(endpoint(STRONGEST), "UserName", "wrong", 3_600_000).disconnect();
    } catch (Exception e) {
      refused = e;
    }
    check(refused != null, "a wrong password was accepted");
    items.add("wrong password: " + refused.getMessage());
  }

  private void values() throws Exception {
    OpcUaClient client = anonymous();
    try {
      for (String type : args.get("types").split(",")) {
        Object array = read(client, node(client, "Array." + type)).getValue();
        check(array != null && array.getClass().isArray() && Array.getLength(array) >= 2, "array of " + type);
        if (!type.equals("Variant")) {
          swap(client, "Scalar." + type, v -> new Variant(Array.get(array, 1)));
        }
        swap(client, "Array." + type, v -> new Variant(reversed(v.getValue())));
        swap(client, "Matrix." + type, v -> {
          Matrix m = (Matrix) v.getValue();
          return new Variant(new Matrix(reversed(m.getElements()), m.getDimensions(), m.getDataType().orElseThrow()));
        });
      }
    } finally {
      client.disconnect();
    }
  }

  /** Reads, writes something else of the same type, reads it back and restores the first value. */
  private void swap(OpcUaClient client, String name, UnaryOperator<Variant> change) throws Exception {
    NodeId id = node(client, name);
    Variant old = read(client, id);
    for (Variant want : List.of(change.apply(old), old)) {
      StatusCode status = client.writeValues(List.of(id), List.of(DataValue.valueOnly(want))).get(0);
      check(status.isGood(), name + ": write: " + status);
      Variant got = read(client, id);
      check(same(got.getValue(), want.getValue()), name + ": wrote " + want + ", read " + got);
    }
    items.add(name);
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
          for (BrowseResult result : client.browse(ask)) {
            collect(client, result, seen, next);
            for (ByteString more = result.getContinuationPoint(); more != null && more.isNotNull() && more.length() > 0; ) {
              BrowseResult page = client.browseNext(false, List.of(more)).getResults()[0];
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
      check(call(client, "NoArguments").getStatusCode().isGood(), "NoArguments");
      CallMethodResult sum = call(client, "Add", new Variant(1.5), new Variant(2.25));
      check(sum.getStatusCode().isGood() && sum.getOutputArguments()[0].getValue().equals(3.75), "Add: " + sum);
      List<Variant> inputs = new ArrayList<>();
      for (String type : args.get("types").split(",")) {
        if (!Set.of("Variant", "DataValue", "DiagnosticInfo", "Structure").contains(type)) {
          inputs.add(read(client, node(client, "Scalar." + type)));
        }
      }
      CallMethodResult echo = call(client, "AllTypes", inputs.toArray(new Variant[0]));
      check(echo.getStatusCode().isGood(), "AllTypes: " + echo.getStatusCode());
      check(List.of(echo.getOutputArguments()).equals(inputs), "AllTypes returned " + List.of(echo.getOutputArguments()));
      StatusCode fail = call(client, "Fail").getStatusCode();
      check(fail.isBad(), "Fail succeeded");
      items.add("Fail: " + fail);
    } finally {
      client.disconnect();
    }
  }

  private CallMethodResult call(OpcUaClient client, String name, Variant... inputs) throws Exception {
    NodeId object = node(client, "Methods");
    NodeId method = node(client, "Methods." + name);
    return client.call(List.of(new CallMethodRequest(object, method, inputs))).getResults()[0];
  }

  private void subscription() throws Exception {
    OpcUaClient client = anonymous();
    try {
      List<Object> values = new CopyOnWriteArrayList<>();
      OpcUaSubscription subscription = subscribe(client, values);
      OpcUaMonitoredItem item = subscription.getMonitoredItems().get(0);
      await(values, 3);
      item.setSamplingInterval(50);
      item.setQueueSize(uint(10));
      subscription.synchronizeMonitoredItems();
      check(item.getModifyResult().orElseThrow().isGood(), "ModifyMonitoredItems: " + item.getModifyResult());
      subscription.setPublishingInterval(60.0);
      subscription.modify();
      await(values, values.size() + 3);
      subscription.removeMonitoredItem(item);
      subscription.synchronizeMonitoredItems();
      Thread.sleep(300);
      int seen = values.size();
      Thread.sleep(1000);
      check(values.size() == seen, "values arrived after the item was deleted");
      subscription.delete();
      items.add(seen + " values");
    } finally {
      client.disconnect();
    }
  }

  private void renewal() throws Exception {
    int lifetime = Integer.parseInt(args.get("token-lifetime"));
    OpcUaClient client = connect(endpoint(STRONGEST), "UserName", args.get("password"), lifetime);
    try {
      List<Object> values = new CopyOnWriteArrayList<>();
      OpcUaSubscription subscription = subscribe(client, values);
      long until = System.nanoTime() + lifetime * 3_200_000L;
      int reads = 0;
      while (System.nanoTime() < until) {
        check(read(client, TIME).isNotNull(), "read");
        reads++;
        Thread.sleep(20);
      }
      await(values, values.size() + 3);
      subscription.delete();
      items.add(lifetime * 3.2 / 1000 + " s on tokens of " + lifetime + " ms, " + reads + " reads, " + values.size() + " values");
    } finally {
      client.disconnect();
    }
  }

  private void reconnect() throws Exception {
    OpcUaClient client = connect(endpoint(STRONGEST), "UserName", args.get("password"), 3_600_000);
    try {
      List<Object> values = new CopyOnWriteArrayList<>();
      subscribe(client, values);
      await(values, 2);
      System.out.println("{\"step\":\"reconnect\",\"event\":\"cut\"}");
      System.out.flush();
      Thread.sleep(1500);
      int before = values.size();
      await(values, before + 3);
      check(read(client, TIME).isNotNull(), "read after the cut");
      items.add(values.size() + " values");
    } finally {
      client.disconnect();
    }
  }

  private OpcUaSubscription subscribe(OpcUaClient client, List<Object> values) throws Exception {
    OpcUaSubscription subscription = new OpcUaSubscription(client, 100.0);
    subscription.create();
    OpcUaMonitoredItem item = OpcUaMonitoredItem.newDataItem(node(client, "Simulation.Counter"));
    item.setSamplingInterval(100);
    item.setDataValueListener((i, value) -> values.add(value.getValue().getValue()));
    subscription.addMonitoredItem(item);
    subscription.synchronizeMonitoredItems();
    check(item.getCreateResult().orElseThrow().isGood(), "CreateMonitoredItems: " + item.getCreateResult());
    return subscription;
  }

  private static void await(List<Object> values, int count) throws Exception {
    for (long until = System.nanoTime() + 30_000_000_000L; values.size() < count; Thread.sleep(20)) {
      check(System.nanoTime() < until, values.size() + " values arrived, expected " + count);
    }
  }

  private OpcUaClient anonymous() throws Exception {
    return connect(endpoint("None/None"), "Anonymous", null, 3_600_000);
  }

  private OpcUaClient connect(EndpointDescription e, String identity, String password, int lifetime) throws Exception {
    IdentityProvider who = switch (identity) {
      case "UserName" -> new UsernameProvider(args.get("user"), password, new CertificateValidator.InsecureCertificateValidator());
      case "Certificate" -> new X509IdentityProvider(certificate(args.get("user-cert")), key(args.get("user-key")));
      default -> AnonymousProvider.INSTANCE;
    };
    X509Certificate certificate = certificate(args.get("cert"));
    OpcUaClientConfig config = OpcUaClientConfig.builder()
        .setApplicationName(LocalizedText.english("milo"))
        .setApplicationUri(args.get("application-uri"))
        .setCertificate(certificate)
        .setCertificateChain(new X509Certificate[] {certificate})
        .setKeyPair(new KeyPair(certificate.getPublicKey(), key(args.get("key"))))
        .setCertificateValidator(new CertificateValidator.InsecureCertificateValidator())
        .setSessionEndpointValidationEnabled(false) // the server announces its own port, not the test proxy's
        .setEndpoint(e)
        .setIdentityProvider(who)
        .setRequestTimeout(uint(15_000))
        .build();
    OpcUaClient client = OpcUaClient.create(config, t -> t.setChannelLifetime(uint(lifetime)));
    try {
      client.connect();
    } catch (Exception ex) {
      client.disconnectAsync();
      throw ex;
    }
    return client;
  }

  private List<EndpointDescription> endpoints() throws Exception {
    if (endpoints == null) {
      String url = args.get("endpoint");
      endpoints = new ArrayList<>();
      for (EndpointDescription e : DiscoveryClient.getEndpoints(url).get(20, TimeUnit.SECONDS)) {
        endpoints.add(EndpointUtil.updateUrl(e, EndpointUtil.getHost(url), EndpointUtil.getPort(url)));
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
    DataValue value = client.readValue(0, TimestampsToReturn.Both, id);
    check(value.getStatusCode().isGood(), id.toParseableString() + ": " + value.getStatusCode());
    return value.getValue();
  }

  private static Object reversed(Object array) {
    int n = Array.getLength(array);
    Object out = Array.newInstance(array.getClass().getComponentType(), n);
    for (int i = 0; i < n; i++) {
      Array.set(out, i, Array.get(array, n - 1 - i));
    }
    return out;
  }

  private static boolean same(Object a, Object b) {
    if (a != null && b != null && a.getClass().isArray() && b.getClass().isArray()) {
      int n = Array.getLength(a);
      if (n != Array.getLength(b)) {
        return false;
      }
      for (int i = 0; i < n; i++) {
        if (!same(Array.get(a, i), Array.get(b, i))) {
          return false;
        }
      }
      return true;
    }
    return a == null ? b == null : a.equals(b);
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
