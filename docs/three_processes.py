"""Device, aggregator and learner in three processes, with nothing but bytes between them.

The device needs `kerchief_device` alone; the aggregator never sees a model, the learner never sees
a report. Status and model are signed, so a false one uses up no decision: install the extra `sign`.
Over a network, replace the pipes by a transport that hides reports from everyone but the
aggregator. A message that is lost or repeated changes nothing.
"""

import multiprocessing
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from kerchief import Aggregator, Guarantee, Learner, Problem, deploy, read_deployment
from kerchief.stores import FileWitness, open_store
from kerchief_device import Device
from kerchief_protocol.model import Model
from kerchief_protocol.parties import Party
from kerchief_protocol.signing import Signed, Signer, new_key, public_key
from kerchief_protocol.task import Task


def aggregator(task: bytes, key: bytes, folder: str, calls: list[Connection]) -> None:
    """The shuffler: takes reports, serves releases."""
    role = Aggregator(
        read_deployment(Task.read(task)),
        store=open_store(f"{folder}/aggregator.db"),
        witness=FileWitness(Path(folder) / "witness"),
    )
    signer = Signer(role.task, key)
    while True:
        for call in multiprocessing.connection.wait(calls):
            assert isinstance(call, Connection)
            match call.recv():
                case "status":
                    call.send(signer.sign(role.status()).write())
                case "take", report:
                    (refused,) = role.take([report])
                    call.send(None if refused is None else refused.word)
                case "releases", first:
                    call.send((role.releases(first), *role.head()))
                case _:
                    return


def learner(task: bytes, key: bytes, releases: Connection, models: Connection) -> None:
    """The learner: follows releases, posts models."""
    role = Learner(read_deployment(Task.read(task)))
    signer = Signer(role.deployment.task, key)
    while models.recv() == "model":
        releases.send(("releases", role.releases))
        new, length, head = releases.recv()
        role.follow(new, length=length, head=head)
        models.send(signer.sign(role.model).write())


def main(users: int = 120) -> int:
    """Play all users on one device; how many the last model has learned from."""
    facts = Problem(dim=2, arms=3, norm=1.0, radius=1.0, low=0.0, high=1.0, horizon=2000)
    promise = Guarantee(epsilon=1.0, delta=1e-6, trust="shuffle", honest=(4, 5))
    keys = {"aggregator": new_key(), "learner": new_key()}
    task = deploy(
        policy="linucb",
        problem=facts,
        guarantee=promise,
        window_s=0,
        parties=[
            Party(role=role, operator="Example Ltd", keys=(public_key(key),))
            for role, key in keys.items()
        ],
    ).task
    to_aggregator, at_aggregator = multiprocessing.Pipe()
    to_learner, at_learner = multiprocessing.Pipe()
    asks, answers = multiprocessing.Pipe()
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        roles = [
            spawn.Process(
                target=aggregator,
                args=(task.data, keys["aggregator"], folder, [at_aggregator, answers]),
            ),
            spawn.Process(target=learner, args=(task.data, keys["learner"], asks, at_learner)),
        ]
        for role in roles:
            role.start()
        device, rng = Device(Task.read(task.data)), np.random.default_rng()
        for _ in range(users):
            to_learner.send("model")
            model = Signed.read(to_learner.recv())
            choice = device.decide(model, np.eye(3, 2))
            device.reward(choice.id, float(rng.random() < (0.8 if choice.arm == 1 else 0.3)))
            # Report now, with or without a reward: the time of a report must not depend on it.
            to_aggregator.send("status")
            report = device.report(choice.id, Signed.read(to_aggregator.recv()))
            to_aggregator.send(("take", report))
            (device.discard if to_aggregator.recv() else device.confirm)(choice.id)
        to_learner.send("model")
        learned = Model.read(Signed.read(to_learner.recv()).message).round
        to_learner.send("end")
        to_aggregator.send("end")
        for role in roles:
            role.join()
    return learned


if __name__ == "__main__":
    print(f"the model has learned from {main()} users")
