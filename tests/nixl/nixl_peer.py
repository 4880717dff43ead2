# SPDX-License-Identifier: Apache-2.0
"""Runs the agent in another process for class Peer of nixl_agents.py. Usage: nixl_peer.py NAME SIZE CONFIG"""
import json
import sys
import zlib

from nixl_agents import Agent, error_of


def fill(agent, seed):
    agent.buf[:] = seed
    return {}


def answer(agent, q):
    do = q["do"]
    if do == "sum":
        return {"sum": zlib.crc32(agent.buf)}
    if do == "fill":
        return fill(agent, q["byte"])
    if do == "notes":
        return {"notes": [n.hex() for n in agent.notes(q["of"], q["n"])]}
    if do == "add":
        return {"name": agent.add((bytes.fromhex(q["metadata"]), 0))}
    if do == "call":  # a method of NIXL's agent
        return {"error": error_of(lambda: getattr(agent.agent, q["method"])(*q["args"]))}
    if do == "knows":
        return {"knows": agent.knows(q["of"])}
    if do == "move":
        whole = [(0, agent.buf.size)]
        return {"state": agent.move(q["op"], q["to"], q["base"], whole, whole, q["notif"].encode())}
    if do == "notify":
        agent.agent.send_notif(q["to"], bytes(q["size"]))
        return {}
    return {"error": do}


def main(name, size, config):
    agent = Agent(name, int(size), **json.loads(config))
    metadata, base = agent.card()
    print(json.dumps({"metadata": metadata.hex(), "base": base}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(agent, json.loads(line))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:4])
