"""asyncua runs the interop scenario against one server.

Arguments and output are described in ../doc.go: flags in, JSON lines out.
"""

import argparse
import asyncio
import json
import logging
import sys
import time
from pathlib import Path

from asyncua import Client, ua
from asyncua.crypto import security_policies

POLICIES = {
    security_policies.SecurityPolicyNone.URI: None,
    security_policies.SecurityPolicyBasic256Sha256.URI: security_policies.SecurityPolicyBasic256Sha256,
    security_policies.SecurityPolicyAes128Sha256RsaOaep.URI: security_policies.SecurityPolicyAes128Sha256RsaOaep,
    security_policies.SecurityPolicyAes256Sha256RsaPss.URI: security_policies.SecurityPolicyAes256Sha256RsaPss,
}
STRONGEST = security_policies.SecurityPolicyAes256Sha256RsaPss
TOKENS = {
    ua.UserTokenType.Anonymous: "Anonymous",
    ua.UserTokenType.UserName: "UserName",
    ua.UserTokenType.Certificate: "Certificate",
}


class Recorder:
    """Collects data changes and lets a step wait for enough of them."""

    def __init__(self):
        self.values = []
        self.arrived = asyncio.Event()

    def datachange_notification(self, node, value, data):
        self.values.append(value)
        self.arrived.set()

    async def wait_for(self, count, seconds):
        deadline = time.monotonic() + seconds
        while len(self.values) < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise RuntimeError(f"{len(self.values)} values arrived, expected {count}")
            self.arrived.clear()
            try:
                await asyncio.wait_for(self.arrived.wait(), left)
            except asyncio.TimeoutError:
                pass


class Scenario:
    def __init__(self, args):
        self.args = args
        self.items = []

    def emit(self, **line):
        print(json.dumps(line), flush=True)

    async def client(self, policy=None, mode=ua.MessageSecurityMode.None_, identity="Anonymous", password=None):
        client = Client(self.args.endpoint, timeout=15)
        client.application_uri = self.args.application_uri
        if policy is not None:
            await client.set_security(
                policy, self.args.cert, self.args.key, server_certificate=self.args.server_cert, mode=mode
            )
        if identity == "UserName":
            client.set_user(self.args.user)
            client.set_password(password or self.args.password)
        elif identity == "Certificate":
            await client.load_client_certificate(self.args.user_cert)
            await client.load_private_key(self.args.user_key)
        return client

    async def namespace(self, client):
        return await client.get_namespace_index(self.args.namespace)

    async def discovery(self):
        client = await self.client()
        servers = await client.connect_and_find_servers()
        assert servers and servers[0].ApplicationUri, "FindServers found nobody"
        endpoints = await client.connect_and_get_server_endpoints()
        for e in endpoints:
            self.items.append(f"{e.SecurityPolicyUri.split('#')[-1]}/{e.SecurityMode.name.rstrip('_')}")

    async def security(self):
        endpoints = await (await self.client()).connect_and_get_server_endpoints()
        for e in endpoints:
            if e.SecurityPolicyUri not in POLICIES:
                continue
            policy = POLICIES[e.SecurityPolicyUri]
            for token in e.UserIdentityTokens:
                kind = TOKENS.get(token.TokenType)
                name = f"{e.SecurityPolicyUri.split('#')[-1]}/{e.SecurityMode.name.rstrip('_')}/{kind}"
                if policy is None and kind != "Anonymous":
                    continue  # asyncua takes the server's certificate from the channel, which has none here
                client = await self.client(policy, e.SecurityMode, kind)
                async with client:
                    state = await client.get_node("i=2259").read_value()
                    assert state == 0, f"{name}: server state {state}"
                self.items.append(name)
        client = await self.client(STRONGEST, ua.MessageSecurityMode.SignAndEncrypt, "UserName", "wrong")
        try:
            async with client:
                pass
        except ua.UaStatusCodeError as refused:
            self.items.append(f"wrong password: {type(refused).__name__}")
        else:
            raise AssertionError("a wrong password was accepted")

    async def values(self):
        async with await self.client() as client:
            ns = await self.namespace(client)
            for name in self.args.types.split(","):
                await self.value_of_type(client, ns, name)

    async def value_of_type(self, client, ns, name):
        scalar = client.get_node(f"ns={ns};s=Demo.Scalar.{name}")
        array = client.get_node(f"ns={ns};s=Demo.Array.{name}")
        matrix = client.get_node(f"ns={ns};s=Demo.Matrix.{name}")
        before = (await array.read_data_value()).Value
        assert before.is_array and len(before.Value) >= 2, f"array of {name}: {before}"
        if name != "Variant":
            await self.swap(scalar, f"Scalar.{name}", lambda v: ua.Variant(before.Value[1], v.VariantType))
        await self.swap(array, f"Array.{name}", lambda v: ua.Variant(list(reversed(v.Value)), v.VariantType, is_array=True))

        def turned(v):
            flat = [list(reversed(row)) for row in reversed(v.Value)]
            return ua.Variant(flat, v.VariantType, v.Dimensions, is_array=True)

        await self.swap(matrix, f"Matrix.{name}", turned)

    async def swap(self, node, name, change):
        """Read, write something else of the same type, read it back, restore."""
        old = (await node.read_data_value()).Value
        new = change(old)
        await node.write_value(ua.DataValue(new))
        got = (await node.read_data_value()).Value
        assert same(got, new), f"{name}: wrote {new}, read {got}"
        await node.write_value(ua.DataValue(old))
        got = (await node.read_data_value()).Value
        assert same(got, old), f"{name}: restored {old}, read {got}"
        self.items.append(name)

    async def browse(self):
        async with await self.client() as client:
            seen, level = set(), [client.get_root_node()]
            seen.add(level[0].nodeid)
            while level:
                following = []
                for i in range(0, len(level), 100):
                    for node, result in await client.browse_nodes(level[i : i + 100]):
                        result.StatusCode.check()
                        refs = result.References
                        more = result.ContinuationPoint
                        while more:
                            params = ua.BrowseNextParameters()
                            params.ContinuationPoints = [more]
                            (nxt,) = await client.uaclient.browse_next(params)
                            nxt.StatusCode.check()
                            refs = list(refs) + list(nxt.References)
                            more = nxt.ContinuationPoint
                        for ref in refs:
                            if getattr(ref.NodeId, "ServerIndex", 0) or not ref.IsForward:
                                continue
                            target = ua.NodeId(ref.NodeId.Identifier, ref.NodeId.NamespaceIndex)
                            if target not in seen:
                                seen.add(target)
                                following.append(client.get_node(target))
                level = following
            self.items.append(f"{len(seen)} nodes")
            assert len(seen) > 1500, f"only {len(seen)} nodes reachable from Root"

    async def calls(self):
        async with await self.client() as client:
            ns = await self.namespace(client)
            methods = client.get_node(f"ns={ns};s=Demo.Methods")
            node = lambda name: ua.NodeId(f"Demo.Methods.{name}", ns)
            assert await methods.call_method(node("NoArguments")) in (None, [])
            total = await methods.call_method(
                node("Add"), ua.Variant(1.5, ua.VariantType.Double), ua.Variant(2.25, ua.VariantType.Double)
            )
            assert total == 3.75, f"Add returned {total}"
            arguments = []
            for name in self.args.types.split(","):
                if name not in ("Variant", "DataValue", "DiagnosticInfo", "Structure"):
                    value = (await client.get_node(f"ns={ns};s=Demo.Scalar.{name}").read_data_value()).Value
                    arguments.append(value)
            echoed = await methods.call_method(node("AllTypes"), *arguments)
            assert echoed == [a.Value for a in arguments], f"AllTypes returned {echoed}"
            try:
                await methods.call_method(node("Fail"))
            except ua.UaStatusCodeError as e:
                self.items.append(f"Fail: {type(e).__name__}")
            else:
                raise AssertionError("Fail succeeded")

    async def subscription(self):
        async with await self.client() as client:
            ns = await self.namespace(client)
            rec = Recorder()
            sub = await client.create_subscription(100, rec)
            counter = client.get_node(f"ns={ns};s=Demo.Simulation.Counter")
            handle = await sub.subscribe_data_change(counter)
            await rec.wait_for(3, 20)
            revised = await sub.modify_monitored_item(handle, 50, 10)
            assert revised[0].StatusCode.is_good(), revised
            params = ua.ModifySubscriptionParameters()
            params.SubscriptionId = sub.subscription_id
            params.RequestedPublishingInterval = 60
            params.RequestedLifetimeCount = 1000
            params.RequestedMaxKeepAliveCount = 10
            await client.uaclient.update_subscription(params)
            await rec.wait_for(len(rec.values) + 3, 20)
            await sub.unsubscribe(handle)
            await asyncio.sleep(0.3)
            seen = len(rec.values)
            await asyncio.sleep(1)
            assert len(rec.values) == seen, "values arrived after the item was deleted"
            await sub.delete()
            self.items.append(f"{seen} values")

    async def renewal(self):
        client = await self.client(STRONGEST, ua.MessageSecurityMode.SignAndEncrypt, "UserName")
        client.secure_channel_timeout = self.args.token_lifetime
        async with client:
            tokens = {client.uaclient.security_policy and client.uaclient.protocol._connection.security_token.TokenId}
            ns = await self.namespace(client)
            rec = Recorder()
            sub = await client.create_subscription(100, rec)
            await sub.subscribe_data_change(client.get_node(f"ns={ns};s=Demo.Simulation.Counter"))
            deadline = time.monotonic() + self.args.token_lifetime * 3.2 / 1000
            reads = 0
            while time.monotonic() < deadline:
                await client.get_node("i=2258").read_value()
                tokens.add(client.uaclient.protocol._connection.security_token.TokenId)
                reads += 1
                await asyncio.sleep(0.02)
            await rec.wait_for(len(rec.values) + 3, 20)
            assert len(tokens) >= 3, f"tokens {tokens}: the channel was not renewed"
            await sub.delete()
            self.items.append(f"{len(tokens)} tokens, {reads} reads, {len(rec.values)} values")

    async def reconnect(self):
        client = await self.client(STRONGEST, ua.MessageSecurityMode.SignAndEncrypt, "UserName")
        await client.connect(auto_reconnect=True)
        try:
            ns = await self.namespace(client)
            rec = Recorder()
            sub = await client.create_subscription(100, rec)
            await sub.subscribe_data_change(client.get_node(f"ns={ns};s=Demo.Simulation.Counter"))
            await rec.wait_for(2, 20)
            self.emit(step="reconnect", event="cut")
            await asyncio.sleep(1.5)
            await client.get_node("i=2258").read_value()
            await rec.wait_for(len(rec.values) + 3, 30)
            self.items.append(f"{len(rec.values)} values")
        finally:
            await client.disconnect()

    async def run(self):
        failed = False
        for step in self.args.steps.split(","):
            self.items = []
            begun = time.monotonic()
            try:
                await asyncio.wait_for(getattr(self, step)(), 120)
            except Exception as e:  # noqa: BLE001 - every failure is a line of the report
                failed = True
                logging.getLogger().exception("step %s", step)
                self.emit(step=step, ok=False, detail=f"{type(e).__name__}: {e}", items=self.items)
            else:
                self.emit(step=step, ok=True, detail=f"{time.monotonic() - begun:.1f}s", items=self.items)
        return 1 if failed else 0


def same(a, b):
    return a.VariantType == b.VariantType and repr(a.Value) == repr(b.Value) and a.is_array == b.is_array


def main():
    parser = argparse.ArgumentParser()
    for name in ("endpoint", "application-uri", "server-cert", "user", "password", "namespace", "steps", "types"):
        parser.add_argument("--" + name, required=True)
    for name in ("cert", "key", "user-cert", "user-key"):
        parser.add_argument("--" + name, type=Path, required=True)
    parser.add_argument("--token-lifetime", type=int, default=4000)
    args = parser.parse_args()
    args.cert, args.key = str(args.cert), str(args.key)
    args.user_cert, args.user_key = str(args.user_cert), str(args.user_key)
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    sys.exit(asyncio.run(Scenario(args).run()))


if __name__ == "__main__":
    main()
