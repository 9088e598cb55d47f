"""A synthetic nvidia-smi for hosts without a GPU: it prints what was put into a table, for the queries it is asked.

Knows nvidia-smi's options for queries and its plain table. Every value it prints is made up (synthetic); no GPU was
asked. It does not know who reads it.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Card:
    """One GPU as nvidia-smi's query fields name it. `is_dead`: nvidia-smi reports it in an error state."""

    name: str
    compute_capability: str
    memory_mib: int
    used_mib: int = 4
    is_dead: bool = False
    extra: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Process:
    card: int
    pid: int
    name: str
    used_mib: int


def write_nvidia_smi(
    path: Path, cards: Sequence[Card], *, driver: str, cuda: str, processes: Sequence[Process] = ()
) -> None:
    """driver: "580.82.07"; cuda: the newest CUDA that driver runs, "13.0"."""
    table = {
        "driver": driver,
        "cuda": cuda,
        "cards": [asdict(card) for card in cards],
        "processes": [asdict(process) for process in processes],
    }
    interpreter = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    path.write_text(f"#!{interpreter} -IB\nTABLE = {json.dumps(table)!r}\n{PROGRAM}")
    path.chmod(0o755)


PROGRAM = r"""
# synthetic: prints the table above
import json
import sys

table = json.loads(TABLE)
DEAD = "[GPU requires reset]"


def card_fields(index):
    card = table["cards"][index]
    total, used = card["memory_mib"], card["used_mib"]
    fields = {
        "index": index, "name": card["name"], "gpu_name": card["name"],
        "uuid": "GPU-%08d-0000-4000-8000-000000000000" % index,
        "driver_version": table["driver"], "compute_cap": card["compute_capability"],
        "memory.total": "%d MiB" % total, "memory.used": "%d MiB" % used, "memory.free": "%d MiB" % (total - used),
        "persistence_mode": "Enabled", "ecc.errors.uncorrected.volatile.total": "0", "mig.mode.current": "[N/A]",
        "ecc.errors.uncorrected.aggregate.total": "0", "ecc.mode.current": "Enabled", "count": len(table["cards"]),
        "pci.bus_id": "00000000:%02X:00.0" % (index + 1), "gpu_bus_id": "00000000:%02X:00.0" % (index + 1),
        "compute_mode": "Default", "pstate": "P8", "utilization.gpu": "0 %", "temperature.gpu": "31",
    }
    fields["gpu_uuid"] = fields["uuid"]
    if card["is_dead"]:
        kept = ("index", "name", "gpu_name", "uuid", "gpu_uuid", "driver_version", "pci.bus_id", "gpu_bus_id", "count")
        fields = {k: v if k in kept else DEAD for k, v in fields.items()}
    fields.update(card["extra"])
    return fields


def process_fields(row):
    card = card_fields(row["card"])
    return {
        "pid": row["pid"], "process_name": row["name"], "name": row["name"], "gpu_uuid": card["uuid"],
        "used_gpu_memory": "%d MiB" % row["used_mib"], "used_memory": "%d MiB" % row["used_mib"],
        "gpu_bus_id": card["pci.bus_id"], "gpu_name": card["name"],
    }


def query(words, rows, options):
    if "noheader" not in options:
        print(", ".join(words))
    for row in rows:
        for word in words:
            if word not in row:
                print('Field "%s" is not a valid field to query.' % word)
                sys.exit(2)
        values = [str(row[word]) for word in words]
        if "nounits" in options:
            values = [v.replace(" MiB", "").replace(" %", "") for v in values]
        print(", ".join(values))


def main(arguments):
    options, asked = "", {}
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name == "--format":
            options = value
        elif name.startswith("--query-"):
            asked[name] = value.split(",")
    cards = [card_fields(i) for i in range(len(table["cards"]))]
    if "--query-gpu" in asked:
        query(asked["--query-gpu"], cards, options)
    elif "--query-compute-apps" in asked:
        query(asked["--query-compute-apps"], [process_fields(r) for r in table["processes"]], options)
    elif "-L" in arguments:
        for card in cards:
            print("GPU %s: %s (UUID: %s)" % (card["index"], card["name"], card["uuid"]))
    elif "--version" in arguments:
        print("NVIDIA-SMI version  : %s" % table["driver"])
        print("NVML version        : %s" % table["driver"].rpartition(".")[0])
        print("DRIVER version      : %s" % table["driver"])
        print("CUDA Version        : %s" % table["cuda"])
    elif not arguments:
        line = "| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-8s |"
        print("+" + "-" * 89 + "+")
        print(line % (table["driver"], table["driver"], table["cuda"]))
        print("+" + "-" * 89 + "+")
        for card in cards:
            print("| %3s  %-30s | %s | %s |" % (card["index"], card["name"], card["pci.bus_id"], card["memory.used"]))
    else:
        print("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.")
        sys.exit(1)


main(sys.argv[1:])
"""
