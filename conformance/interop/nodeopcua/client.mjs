// node-opcua runs the interop scenario against one server.
// Arguments and output are described in ../doc.go: flags in, JSON lines out.
import { mkdtempSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";

// The packages live in the ignored install folder, not beside this file.
const require = createRequire(join(process.env.INTEROP_MODULES, "x.js"));
const opcua = require("node-opcua-client");
const { OPCUACertificateManager } = require("node-opcua-certificate-manager");
const { keyOperationsFromPrivateKey, readPrivateKey } = require("node-opcua-crypto");

const {
    AttributeIds, BrowseDirection, ClientSubscription, DataType, MessageSecurityMode, OPCUAClient, SecurityPolicy,
    TimestampsToReturn, UserTokenType, Variant, VariantArrayType,
} = opcua;

const { values: args } = parseArgs({
    options: Object.fromEntries(
        ["endpoint", "application-uri", "server-cert", "user", "password", "namespace", "steps", "types", "cert", "key",
            "user-cert", "user-key", "token-lifetime"].map((n) => [n, { type: "string" }]),
    ),
});

const sleep = (ms) => new Promise((r) => setTimeout(r, ms));
const emit = (line) => process.stdout.write(JSON.stringify(line) + "\n");
function check(ok, message) {
    if (!ok) throw new Error(message);
}

const certificates = new OPCUACertificateManager({
    rootFolder: mkdtempSync(join(tmpdir(), "node-opcua-")),
    automaticallyAcceptUnknownCertificate: true,
});
await certificates.initialize();

const strongest = { securityPolicy: SecurityPolicy.Aes256_Sha256_RsaPss, securityMode: MessageSecurityMode.SignAndEncrypt };

function client(options = {}) {
    return OPCUAClient.create({
        applicationName: "node-opcua",
        applicationUri: args["application-uri"],
        certificateFile: args.cert,
        privateKeyFile: args.key,
        clientCertificateManager: certificates,
        endpointMustExist: false,
        // The server announces its own port; the test's proxy listens on another one.
        discoveryUrl: args.endpoint,
        connectionStrategy: { maxRetry: 3, initialDelay: 200, maxDelay: 1000 },
        requestedSessionTimeout: 60000,
        ...options,
    });
}

function identity(kind, password) {
    switch (kind) {
        case "UserName":
            return { type: UserTokenType.UserName, userName: args.user, password: password ?? args.password };
        case "Certificate":
            return {
                type: UserTokenType.Certificate,
                certificateData: readFileSync(args["user-cert"]),
                keyOperations: keyOperationsFromPrivateKey(readPrivateKey(args["user-key"])),
            };
        default:
            return { type: UserTokenType.Anonymous };
    }
}

async function withSession(options, who, work) {
    const c = client(options);
    await c.connect(args.endpoint);
    try {
        const session = await c.createSession(who);
        try {
            await work(session, c);
        } finally {
            await session.close();
        }
    } finally {
        await c.disconnect();
    }
}

const anonymous = (work) => withSession({}, identity("Anonymous"), work);

async function namespace(session) {
    const index = (await session.readNamespaceArray()).indexOf(args.namespace);
    check(index > 0, `no namespace ${args.namespace}`);
    return index;
}

const policyName = (uri) => uri.split("#")[1];

const steps = {
    async discovery(items) {
        const c = client();
        await c.connect(args.endpoint);
        try {
            const servers = await c.findServers();
            check(servers.length > 0 && servers[0].applicationUri, "FindServers found nobody");
            for (const e of await c.getEndpoints()) {
                items.push(`${policyName(e.securityPolicyUri)}/${MessageSecurityMode[e.securityMode]}`);
            }
        } finally {
            await c.disconnect();
        }
    },

    async security(items) {
        const c = client();
        await c.connect(args.endpoint);
        const endpoints = await c.getEndpoints();
        await c.disconnect();
        for (const e of endpoints) {
            for (const token of e.userIdentityTokens) {
                const kind = UserTokenType[token.tokenType];
                const policy = policyName(e.securityPolicyUri);
                if (policy === "None" && kind === "Certificate") continue; // node-opcua signs with the channel's policy
                const name = `${policy}/${MessageSecurityMode[e.securityMode]}/${kind}`;
                try {
                    await withSession(
                        { securityPolicy: e.securityPolicyUri, securityMode: e.securityMode },
                        identity(kind),
                        async (session) => {
                            const state = await session.read({ nodeId: "i=2259", attributeId: AttributeIds.Value });
                            check(state.value.value === 0, `server state ${state}`);
                        },
                    );
                } catch (err) {
                    throw new Error(`${name}: ${err.message}`);
                }
                items.push(name);
            }
        }
        let refused;
        try {
            await withSession(strongest, identity("UserName", "wrong"), async () => {});
        } catch (err) {
            refused = err;
        }
        check(refused, "a wrong password was accepted");
        items.push(`wrong password: ${refused.message.split("\n")[0]}`);
    },

    async values(items) {
        await anonymous(async (session) => {
            const ns = await namespace(session);
            for (const type of args.types.split(",")) {
                const array = (await session.read({ nodeId: `ns=${ns};s=Demo.Array.${type}` })).value;
                check(array.arrayType === VariantArrayType.Array && array.value.length >= 2, `array of ${type}: ${array}`);
                if (type !== "Variant") {
                    await swap(session, ns, `Scalar.${type}`, items, (v) =>
                        new Variant({ dataType: v.dataType, arrayType: VariantArrayType.Scalar, value: array.value[1] }));
                }
                await swap(session, ns, `Array.${type}`, items, (v) =>
                    new Variant({ dataType: v.dataType, arrayType: VariantArrayType.Array, value: v.value.slice().reverse() }));
                await swap(session, ns, `Matrix.${type}`, items, (v) => {
                    check(v.arrayType === VariantArrayType.Matrix && v.dimensions.length === 2, `matrix of ${type}: ${v}`);
                    return new Variant({
                        dataType: v.dataType, arrayType: VariantArrayType.Matrix,
                        dimensions: v.dimensions, value: v.value.slice().reverse(),
                    });
                });
            }
        });
    },

    async browse(items) {
        await anonymous(async (session) => {
            const seen = new Set(["ns=0;i=84"]);
            let level = ["ns=0;i=84"];
            while (level.length > 0) {
                const next = [];
                for (let i = 0; i < level.length; i += 100) {
                    const results = await session.browse(level.slice(i, i + 100).map((nodeId) => ({
                        nodeId, browseDirection: BrowseDirection.Forward, includeSubtypes: true,
                        nodeClassMask: 0, resultMask: 63,
                    })));
                    for (let result of results) {
                        for (;;) {
                            check(result.statusCode.isGood(), `browse: ${result.statusCode}`);
                            for (const ref of result.references) {
                                const id = ref.nodeId.toString();
                                if (ref.nodeId.serverIndex || ref.nodeId.namespaceUri || seen.has(id)) continue;
                                seen.add(id);
                                next.push(id);
                            }
                            if (!result.continuationPoint || result.continuationPoint.length === 0) break;
                            result = await session.browseNext(result.continuationPoint, false);
                        }
                    }
                }
                level = next;
            }
            items.push(`${seen.size} nodes`);
            check(seen.size > 1500, `only ${seen.size} nodes reachable from Root`);
        });
    },

    async calls(items) {
        await anonymous(async (session) => {
            const ns = await namespace(session);
            const call = (name, inputArguments = []) => session.call({
                objectId: `ns=${ns};s=Demo.Methods`, methodId: `ns=${ns};s=Demo.Methods.${name}`, inputArguments,
            });
            const none = await call("NoArguments");
            check(none.statusCode.isGood(), `NoArguments: ${none.statusCode}`);
            const sum = await call("Add", [
                { dataType: DataType.Double, value: 1.5 }, { dataType: DataType.Double, value: 2.25 },
            ]);
            check(sum.statusCode.isGood() && sum.outputArguments[0].value === 3.75, `Add: ${sum}`);
            const inputs = [];
            for (const type of args.types.split(",")) {
                if (["Variant", "DataValue", "DiagnosticInfo", "Structure"].includes(type)) continue;
                inputs.push((await session.read({ nodeId: `ns=${ns};s=Demo.Scalar.${type}` })).value);
            }
            const echo = await call("AllTypes", inputs);
            check(echo.statusCode.isGood(), `AllTypes: ${echo}`);
            check(text(echo.outputArguments) === text(inputs), `AllTypes returned ${echo.outputArguments}`);
            const fail = await call("Fail");
            check(!fail.statusCode.isGood(), "Fail succeeded");
            items.push(`Fail: ${fail.statusCode.name}`);
        });
    },

    async subscription(items) {
        await anonymous(async (session) => {
            const { subscription, item, values } = await subscribe(session);
            await waitFor(values, 3);
            await item.modify({ samplingInterval: 50, queueSize: 10, discardOldest: true });
            const answer = await subscription.modify({ requestedPublishingInterval: 60, requestedLifetimeCount: 1000, requestedMaxKeepAliveCount: 10 });
            check(answer.revisedPublishingInterval >= 50, `ModifySubscription: ${answer}`);
            await waitFor(values, values.length + 3);
            await item.terminate();
            await sleep(300);
            const seen = values.length;
            await sleep(1000);
            check(values.length === seen, "values arrived after the item was deleted");
            await subscription.terminate();
            items.push(`${seen} values`);
        });
    },

    async renewal(items) {
        const lifetime = Number(args["token-lifetime"]);
        await withSession({ ...strongest, defaultSecureTokenLifetime: lifetime }, identity("UserName"), async (session, c) => {
            let renewed = 0;
            c.on("security_token_renewed", () => renewed++);
            const { values } = await subscribe(session);
            const until = Date.now() + lifetime * 3.2;
            let reads = 0;
            while (Date.now() < until) {
                const v = await session.read({ nodeId: "i=2258", attributeId: AttributeIds.Value });
                check(v.statusCode.isGood(), `read: ${v.statusCode}`);
                reads++;
                await sleep(20);
            }
            await waitFor(values, values.length + 3);
            check(renewed >= 3, `${renewed} renewals in ${lifetime * 3.2} ms`);
            items.push(`${renewed} renewals, ${reads} reads, ${values.length} values`);
        });
    },

    async reconnect(items) {
        await withSession(strongest, identity("UserName"), async (session, c) => {
            const { values } = await subscribe(session);
            await waitFor(values, 2);
            const back = new Promise((r) => c.once("after_reconnection", r));
            emit({ step: "reconnect", event: "cut" });
            await Promise.race([back, sleep(30000).then(() => { throw new Error("no reconnection in 30 s"); })]);
            await waitFor(values, values.length + 3);
            items.push(`${values.length} values`);
        });
    },
};

const text = (v) => JSON.stringify(v, (_, x) => (typeof x === "bigint" ? String(x) : x));

// swap reads a value, writes another one of the same type, reads it back and restores the first.
async function swap(session, ns, name, items, change) {
    const nodeId = `ns=${ns};s=Demo.${name}`;
    const old = (await session.read({ nodeId })).value;
    for (const want of [change(old), old]) {
        const status = await session.write({ nodeId, attributeId: AttributeIds.Value, value: { value: want } });
        check(status.isGood(), `${name}: write: ${status}`);
        const got = (await session.read({ nodeId })).value;
        check(text(got) === text(want), `${name}: wrote ${text(want)}, read ${text(got)}`);
    }
    items.push(name);
}

async function subscribe(session) {
    const ns = await namespace(session);
    const subscription = await session.createSubscription2({
        requestedPublishingInterval: 100, requestedLifetimeCount: 1000, requestedMaxKeepAliveCount: 10,
        maxNotificationsPerPublish: 0, publishingEnabled: true, priority: 1,
    });
    const item = await subscription.monitor(
        { nodeId: `ns=${ns};s=Demo.Simulation.Counter`, attributeId: AttributeIds.Value },
        { samplingInterval: 100, queueSize: 10, discardOldest: true }, TimestampsToReturn.Both,
    );
    const values = [];
    item.on("changed", (dv) => values.push(dv.value.value));
    return { subscription, item, values };
}

async function waitFor(values, count, ms = 20000) {
    const until = Date.now() + ms;
    while (values.length < count) {
        check(Date.now() < until, `${values.length} values arrived, expected ${count}`);
        await sleep(20);
    }
}

let failed = 0;
for (const step of args.steps.split(",")) {
    const items = [];
    const begun = Date.now();
    try {
        await steps[step](items);
        emit({ step, ok: true, detail: `${Date.now() - begun} ms`, items });
    } catch (err) {
        failed = 1;
        console.error(err);
        emit({ step, ok: false, detail: String(err.message ?? err), items });
    }
}
process.exit(failed);
