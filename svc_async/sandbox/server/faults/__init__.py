"""Faults, injected on purpose: when they strike, and what they do.

    sandbox.faults.on("POST", "*/custom_audiences/*/users").nth(2).do(Fault.http(503))
    sandbox.faults.on("PUT").once().do(Fault.drop_connection(), stage="after")

A fault strikes `before` the request is processed, instead of its `effect`, or `after` it took effect. Every armed fault
counts every request that matches it. Of several that would strike a request at the same stage, the one that was armed
first does.
"""

from svc_async.sandbox.server.faults.fault import STAGES, Fault, FaultTarget, Stage
from svc_async.sandbox.server.faults.plan import METHODS, Faults, Injection, Plan

__all__ = ["METHODS", "STAGES", "Fault", "FaultTarget", "Faults", "Injection", "Plan", "Stage"]
