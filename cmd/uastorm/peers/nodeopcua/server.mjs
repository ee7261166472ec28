// A node-opcua server for uastorm to run against: a counter that goes up ten times a
// second and a set point that may be written. Its modules are in the folder
// UASTORM_MODULES, so that nothing is installed into the source tree.
import { createRequire } from "node:module";
import path from "node:path";

const require = createRequire(path.join(process.env.UASTORM_MODULES, "x.js"));
const { OPCUAServer } = require("node-opcua-server");
const { OPCUACertificateManager } = require("node-opcua-certificate-manager");

const [port, pki] = process.argv.slice(2);
const manager = new OPCUACertificateManager({ rootFolder: pki, automaticallyAcceptUnknownCertificate: true });
const server = new OPCUAServer({
  port: Number(port),
  hostname: "127.0.0.1",
  serverCertificateManager: manager,
  maxConnectionsPerEndpoint: 500,
  serverCapabilities: { maxSessions: 500 },
});
await server.initialize();
const space = server.engine.addressSpace;
const own = space.getOwnNamespace();
const folder = own.addFolder("ObjectsFolder", { browseName: "Load" });
const counter = own.addVariable({ componentOf: folder, nodeId: "s=Counter", browseName: "Counter", dataType: "UInt32", minimumSamplingInterval: 0 });
own.addVariable({
  componentOf: folder, nodeId: "s=SetPoint", browseName: "SetPoint", dataType: "Double", minimumSamplingInterval: 0,
  value: { dataType: "Double", value: 21.5 },
});
let n = 0;
const timer = setInterval(() => counter.setValueFromSource({ dataType: "UInt32", value: ++n }), 100);
await server.start();
console.log("ready");
for (const signal of ["SIGTERM", "SIGINT"]) {
  process.once(signal, async () => {
    clearInterval(timer);
    await server.shutdown(100);
    process.exit(0);
  });
}
