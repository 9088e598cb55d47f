"""GPUs, their driver, health and processes: nvidia-smi, /proc/driver/nvidia, the kernel log and a CUDA child.

Every command has a deadline; one that does not end is itself the fact.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Tuple

from ..commands import Result, run
from ..files.walk import Report
from .cuda_child import CHILD_SOURCE, parse_answer
from .system import read_text

FIELDS: Tuple[str, ...] = (
    "index", "uuid", "name", "compute_cap", "memory.total", "memory.used", "persistence_mode",
    "ecc.errors.uncorrected.volatile.total", "pci.bus_id", "driver_version", "mig.mode.current",
)  # fmt: skip
OLD_FIELDS = tuple(field for field in FIELDS if field not in ("compute_cap", "mig.mode.current"))
DEADLINE_S = 10.0
MAX_XID_LINES = 20
NO_DEVICES = "No devices were found"
HOW = "nvidia-smi, /proc/driver/nvidia, a CUDA context on each GPU"


def parse_query(text: str, fields: Tuple[str, ...]) -> Tuple[List[Dict[str, str]], List[str]]:
    """(rows by field name, other lines: errors about single GPUs) of --query-gpu in csv,noheader,nounits."""
    rows, others = [], []
    for line in text.splitlines():
        values = [value.strip() for value in line.split(",")]
        if len(values) == len(fields) and values[0].isdigit():
            rows.append(dict(zip(fields, values)))
        elif line.strip():
            others.append(line.strip())
    return rows, others


def parse_cuda_version(text: str) -> str:
    """ "13.0" of nvidia-smi's table."""
    match = re.search(r"CUDA Version:\s*(\d+\.\d+)", text)
    return match.group(1) if match else ""


def parse_processes(text: str) -> List[Dict[str, Any]]:
    """Of --query-compute-apps=pid,gpu_uuid,used_memory,process_name in csv,noheader,nounits."""
    rows = []
    for line in text.splitlines():
        values = [value.strip() for value in line.split(",", 3)]
        if len(values) == 4 and values[0].isdigit():
            rows.append(
                {
                    "pid": int(values[0]),
                    "gpu_uuid": values[1],
                    "memory_bytes": _mebibytes(values[2]),
                    "name": values[3],
                }
            )
    return rows


def parse_proc_gpus(texts: List[str]) -> List[Dict[str, str]]:
    """Of /proc/driver/nvidia/gpus/*/information: name, uuid, pci_bus. The kernel lists GPUs that the tools lost."""
    gpus = []
    for text in texts:
        values = dict(re.findall(r"^([^:\n]+):[ \t]*(.*?)[ \t]*$", text, re.M))
        gpus.append(
            {
                "name": values.get("Model", ""),
                "uuid": values.get("GPU UUID", ""),
                "pci_bus": values.get("Bus Location", ""),
            }
        )
    return gpus


def parse_driver_version(text: str) -> str:
    """Of /proc/driver/nvidia/version."""
    match = re.search(r"Kernel Module(?:\s+for\s+\S+)?\s+(\d+\.\d+(?:\.\d+)?)", text)
    return match.group(1) if match else ""


def parse_xid(text: str) -> List[str]:
    """The newest kernel log lines that name an Xid error."""
    return [line.strip()[:300] for line in text.splitlines() if "NVRM: Xid" in line][-MAX_XID_LINES:]


def _mebibytes(text: str) -> int:
    return int(text) << 20 if text.isdigit() else 0


def _gpu(row: Dict[str, str]) -> Dict[str, Any]:
    """Shaped like inventory.Gpu, health still unknown unless nvidia-smi says it is lost."""
    ecc = row.get("ecc.errors.uncorrected.volatile.total", "")
    persistence = {"Enabled": True, "Disabled": False}.get(row.get("persistence_mode", ""))
    capability = row.get("compute_cap", "")
    lost = [value for value in row.values() if re.search(r"(?i)unknown error|gpu is lost|requires reset|^ERR!$", value)]
    return {
        "index": int(row["index"]),
        "uuid": row["uuid"],
        "name": row["name"],
        "compute_capability": capability if re.match(r"^\d+\.\d+$", capability) else "",
        "memory_total_bytes": _mebibytes(row["memory.total"]),
        "memory_used_bytes": _mebibytes(row["memory.used"]),
        "persistence": persistence,
        "ecc_uncorrected": int(ecc) if ecc.isdigit() else None,
        "pci_bus": row["pci.bus_id"],
        "health": "unusable" if lost else "unknown",
        "health_detail": "nvidia-smi: %s" % lost[0] if lost else "",
        "mig": row.get("mig.mode.current", "") == "Enabled",
    }


def combine(rows: List[Dict[str, str]], others: List[str], proc: List[Dict[str, str]]) -> List[Dict[str, Any]]:
    """GPUs of nvidia-smi, then those that only the kernel lists: nvidia-smi cannot reach these."""
    gpus = [_gpu(row) for row in rows]
    known = {_short_bus(gpu["pci_bus"]) for gpu in gpus} | {gpu["uuid"] for gpu in gpus}
    for found in proc:
        if _short_bus(found["pci_bus"]) in known or found["uuid"] in known:
            continue
        reasons = [line for line in others if _short_bus(found["pci_bus"]) in line.lower()] or others
        row = dict.fromkeys(FIELDS, "")
        row.update(index=str(len(gpus)), uuid=found["uuid"], name=found["name"])
        row["pci.bus_id"] = found["pci_bus"]
        detail = "nvidia-smi: %s" % (reasons[0] if reasons else "does not list it, the kernel does")
        gpus.append(dict(_gpu(row), health="unusable", health_detail=detail[:300]))
    return gpus


def _short_bus(bus: str) -> str:
    """nvidia-smi writes an eight-digit domain, the kernel four: compare 01:00.0 alone."""
    return bus.lower().split(":", 1)[-1]


def read_gpus(report: Report) -> Dict[str, Any]:
    """Shaped like inventory.Gpus. A nvidia-smi that is there and lists nothing is reported, for nobody knows then what
    there is; unless it says that there is nothing."""
    proc = parse_proc_gpus([read_text(p) for p in sorted(glob.glob("/proc/driver/nvidia/gpus/*/information"))])
    driver = parse_driver_version(read_text("/proc/driver/nvidia/version"))
    fields, result = FIELDS, _query(FIELDS)
    if "not a valid field" in result.output + result.error:
        fields, result = OLD_FIELDS, _query(OLD_FIELDS)
    rows, others = parse_query(result.output + "\n" + result.error, fields)
    gpus = combine(rows, others, proc)
    detail = "nvidia-smi: %s" % result.problem if result.problem else "; ".join(others)[:1000]
    if rows:
        driver = rows[0]["driver_version"] or driver
    elif result.problem != "not found" and NO_DEVICES not in detail:
        report("nvidia-smi", detail.partition("nvidia-smi: ")[2] or detail or "it says nothing")
    facts: Dict[str, Any] = {"how": HOW, "driver_version": driver, "driver_cuda_version": "", "detail": detail}
    if result.problem == "not found" and not driver and not gpus:
        return dict(facts, devices=[], processes=[], xid_errors=[], detail="no NVIDIA driver was found")
    with ThreadPoolExecutor(16) as pool:
        table = pool.submit(run, ["nvidia-smi"], DEADLINE_S) if rows else None
        apps = pool.submit(_query_processes) if rows else None
        log = pool.submit(_kernel_log)
        verdicts = list(pool.map(_ask_cuda, gpus))
        facts["driver_cuda_version"] = parse_cuda_version(table.result().output) if table else ""
        facts["processes"] = apps.result() if apps else []
        facts["xid_errors"] = parse_xid(log.result())
    facts["driver_cuda_version"] = facts["driver_cuda_version"] or next(
        (verdict["driver"] for verdict in verdicts if verdict["driver"]), ""
    )
    facts["devices"] = [judge(gpu, verdict) for gpu, verdict in zip(gpus, verdicts)]
    return facts


def judge(gpu: Dict[str, Any], verdict: Dict[str, Any]) -> Dict[str, Any]:
    """The GPU with its health: what CUDA says counts, unless nvidia-smi has lost the GPU already."""
    capability = gpu["compute_capability"] or verdict["capability"]
    if gpu["health"] == "unusable":
        return dict(gpu, compute_capability=capability)
    detail = verdict["health_detail"]
    return dict(gpu, compute_capability=capability, health=verdict["health"], health_detail=detail)


def _query(fields: Tuple[str, ...]) -> Result:
    return run(["nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"], timeout_s=DEADLINE_S)


def _query_processes() -> List[Dict[str, Any]]:
    query = "--query-compute-apps=pid,gpu_uuid,used_memory,process_name"
    return parse_processes(run(["nvidia-smi", query, "--format=csv,noheader,nounits"], timeout_s=DEADLINE_S).output)


def _ask_cuda(gpu: Dict[str, Any]) -> Dict[str, Any]:
    """One child for one GPU: a broken one must not spoil the answer about the others."""
    variables = dict(os.environ, CUDA_VISIBLE_DEVICES=gpu["uuid"] or str(gpu["index"]))
    variables.update(CUDA_DEVICE_ORDER="PCI_BUS_ID", CUDA_CACHE_DISABLE="1")
    result = run([sys.executable, "-I", "-S", "-B", "-c", CHILD_SOURCE], DEADLINE_S, variables)
    return parse_answer(result.output, result.problem, result.error)


def _kernel_log() -> str:
    result = run(["dmesg", "--kernel"], timeout_s=5.0)
    if result.is_ok:
        return result.output
    return run(["journalctl", "-k", "--no-pager", "-q", "-n", "20", "-g", "NVRM: Xid"], timeout_s=5.0).output
