"""o6, the Python binding of open62541, runs the interop scenario against one server.

Arguments and output are described in ../doc.go: flags in, JSON lines out.
"""

import argparse
import json
import logging
import sys
import threading
import time
from pathlib import Path

import numpy as np
import o6
from o6.ns import ns0

NONE = "http://opcfoundation.org/UA/SecurityPolicy#None"
STRONGEST = ("http://opcfoundation.org/UA/SecurityPolicy#Aes256_Sha256_RsaPss", 3)
MODES = {1: "None", 2: "Sign", 3: "SignAndEncrypt"}
TOKENS = {0: "Anonymous", 1: "UserName", 2: "Certificate"}


class Recorder:
    """Collects data changes and lets a step wait for enough of them."""

    def __init__(self):
        self.values = []
        self.arrived = threading.Condition()

    def __call__(self, *args):
        with self.arrived:
            self.values.append(args[-1])
            self.arrived.notify_all()

    def wait_for(self, count, seconds=20):
        with self.arrived:
            if not self.arrived.wait_for(lambda: len(self.values) >= count, seconds):
                raise AssertionError(f"{len(self.values)} values arrived, expected {count}")


class Scenario:
    def __init__(self, args):
        self.args = args
        self.items = []
        # One name for the namespace in every client; o6 maps it to the server's index.
        o6.ns.register(shortname="demo", uri=args.namespace)

    def emit(self, **line):
        print(json.dumps(line), flush=True)

    def client(self, policy=NONE, mode=1, identity="Anonymous", password=None, lifetime=None):
        secured = {}
        if policy != NONE or identity != "Anonymous":
            secured = dict(
                certificate=self.args.cert, privateKey=self.args.key, trustList=[self.args.server_cert]
            )
        client = o6.Client(
            self.args.endpoint,
            applicationUri=self.args.application_uri,
            securityMode=mode,
            securityPolicy=policy,
            **secured,
        )
        client.config.timeout = 15000
        if lifetime:
            client.config.secureChannelLifeTime = lifetime
        if identity == "UserName":
            client.config.setUsernamePassword(self.args.user, password or self.args.password)
        elif identity == "Certificate":
            client.config.setAuthenticationCert(self.args.user_cert.read_bytes(), self.args.user_key.read_bytes())
        return client

    def node(self, name):
        return f"ns=demo;s=Demo.{name}"

    def endpoints(self):
        client = self.client()
        client.connect(noSession=True)
        try:
            return client.findServers(self.args.endpoint), client.getEndpoints(self.args.endpoint)
        finally:
            client.disconnect()

    def discovery(self):
        servers, endpoints = self.endpoints()
        assert servers and servers[0].applicationUri, "FindServers found nobody"
        for e in endpoints:
            self.items.append(f"{str(e.securityPolicyUri).split('#')[-1]}/{MODES[int(e.securityMode)]}")

    def security(self):
        for e in self.endpoints()[1]:
            for token in e.userIdentityTokens:
                policy, mode, kind = str(e.securityPolicyUri), int(e.securityMode), TOKENS[int(token.tokenType)]
                name = f"{policy.split('#')[-1]}/{MODES[mode]}/{kind}"
                if policy == NONE and kind != "Anonymous":
                    continue  # without a channel policy o6 sends user tokens in the clear only
                try:
                    with self.client(policy, mode, kind) as client:
                        assert client.read("i=2259") == 0, "server state"
                except Exception as e:
                    raise AssertionError(f"{name}: {e!r}") from e
                self.items.append(name)
        try:
            with self.client(*STRONGEST, "UserName", "wrong"):
                pass
        except Exception as refused:
            self.items.append(f"wrong password: {refused!r}")
        else:
            raise AssertionError("a wrong password was accepted")

    def values(self):
        with self.client() as client:
            for name in self.args.types.split(","):
                if name in ("Variant", "DataValue"):
                    continue  # o6 unwraps them and writes what they hold
                array = client.read(self.node(f"Array.{name}"))
                assert len(array) >= 2, f"array of {name}: {array!r}"
                self.swap(client, f"Scalar.{name}", lambda v: array[1])
                self.swap(client, f"Array.{name}", lambda v: v[::-1].copy())
                self.swap(client, f"Matrix.{name}", lambda v: v[::-1, ::-1].copy())

    def swap(self, client, name, change):
        """Read, write something else of the same type, read it back, restore."""
        node = self.node(name)
        old = client.read(node)
        if name.startswith("Matrix."):
            assert old.ndim == 2, f"{name}: {old!r}"
        for want in (change(old), old):
            client.write(node, want).check()
            got = client.read(node)
            assert same(got, want), f"{name}: wrote {want!r}, read {got!r}"
        self.items.append(name)

    def browse(self):
        with self.client() as client:
            seen, level = {"i=84"}, ["i=84"]
            while level:
                following = []
                for node in level:
                    for ref in client.browse(node, reftype=o6.NodeId("i=31")):
                        if ref.nodeId.svr:
                            continue
                        key = str(ref.nodeId)
                        if key not in seen:
                            seen.add(key)
                            following.append(ref.nodeId)
                level = following
            self.items.append(f"{len(seen)} nodes")
            assert len(seen) > 1500, f"only {len(seen)} nodes reachable from Root"

    def calls(self):
        with self.client() as client:
            def call(name, *args):
                return client.call(self.node("Methods"), self.node(f"Methods.{name}"), list(args))

            call("NoArguments")[0].check()
            total = call("Add", np.float64(1.5), np.float64(2.25))
            total[0].check()
            assert total[1] == 3.75, f"Add returned {total}"
            arguments = [
                client.read(self.node(f"Scalar.{name}"))
                for name in self.args.types.split(",")
                if name not in ("Variant", "DataValue", "DiagnosticInfo", "Structure")
            ]
            echoed = call("AllTypes", *arguments)
            echoed[0].check()
            assert list(echoed[1:]) == arguments, f"AllTypes returned {echoed}"
            failed = call("Fail")
            assert failed[0] & 0x80000000, "Fail succeeded"
            self.items.append(f"Fail: {failed[0]!r}")

    def subscription(self):
        with self.client() as client:
            rec = Recorder()
            sub = client.createSubscription(100)
            item = client.monitor(self.node("Simulation.Counter"), rec, 100.0, subscription=sub)
            rec.wait_for(3)
            item.modify(samplingInterval=50.0, queueSize=10)
            sub.modify(publishingInterval=60)
            rec.wait_for(len(rec.values) + 3)
            item.delete()
            time.sleep(0.3)
            seen = len(rec.values)
            time.sleep(1)
            assert len(rec.values) == seen, "values arrived after the item was deleted"
            sub.delete()
            self.items.append(f"{seen} values")

    def renewal(self):
        lifetime = self.args.token_lifetime
        with self.client(*STRONGEST, "UserName", lifetime=lifetime) as client:
            rec = Recorder()
            sub = client.createSubscription(100)
            client.monitor(self.node("Simulation.Counter"), rec, 100.0, subscription=sub)
            deadline = time.monotonic() + lifetime * 3.2 / 1000
            reads = 0
            while time.monotonic() < deadline:
                client.read("i=2258")
                reads += 1
                time.sleep(0.02)
            rec.wait_for(len(rec.values) + 3)
            sub.delete()
            self.items.append(f"{lifetime * 3.2 / 1000:.0f} s on tokens of {lifetime} ms, {reads} reads, {len(rec.values)} values")

    def reconnect(self):
        client = self.client(*STRONGEST, "UserName")
        client.connect()
        try:
            client.read("i=2258")
            self.emit(step="reconnect", event="cut")
            deadline = time.monotonic() + 30
            while True:
                time.sleep(0.2)
                try:
                    if not client.connected:
                        client.connect()
                    client.read("i=2258")
                    break
                except Exception:
                    if time.monotonic() > deadline:
                        raise
            rec = Recorder()
            sub = client.createSubscription(100)
            client.monitor(self.node("Simulation.Counter"), rec, 100.0, subscription=sub)
            rec.wait_for(3)
            self.items.append(f"{len(rec.values)} values")
        finally:
            client.disconnect()

    def run(self):
        failed = 0
        for step in self.args.steps.split(","):
            self.items = []
            begun = time.monotonic()
            try:
                getattr(self, step)()
            except Exception as e:  # noqa: BLE001 - every failure is a line of the report
                failed = 1
                logging.getLogger().exception("step %s", step)
                self.emit(step=step, ok=False, detail=f"{type(e).__name__}: {e}", items=self.items)
            else:
                self.emit(step=step, ok=True, detail=f"{time.monotonic() - begun:.1f}s", items=self.items)
        return failed


def same(a, b):
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and repr(a) == repr(b)
    return bool(a == b) or repr(a) == repr(b)  # structures compare by identity


def main():
    parser = argparse.ArgumentParser()
    for name in ("endpoint", "application-uri", "server-cert", "user", "password", "namespace", "steps", "types"):
        parser.add_argument("--" + name, required=True)
    for name in ("cert", "key", "user-cert", "user-key"):
        parser.add_argument("--" + name, type=Path, required=True)
    parser.add_argument("--token-lifetime", type=int, default=4000)
    args = parser.parse_args()
    args.server_cert = Path(args.server_cert)
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    sys.exit(Scenario(args).run())


if __name__ == "__main__":
    main()
