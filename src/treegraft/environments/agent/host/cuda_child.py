"""What a child process asks the CUDA driver of one GPU, and the parser of its answer.

The child may hang or die with a broken GPU; whoever starts it gives it a deadline. It creates a context (the only
proof that a GPU works) and destroys it at once.
"""

from __future__ import annotations

import json
from typing import Any, Dict

CHILD_SOURCE = r"""
import ctypes, json
answer = {"driver": "", "stage": "load", "error": "", "count": 0, "capability": "", "name": ""}
def fail(stage, code):
    text = ctypes.c_char_p()
    cuda.cuGetErrorName(code, ctypes.byref(text))
    answer.update(stage=stage, error=(text.value or b"").decode() or "error %d" % code)
    raise SystemExit(print(json.dumps(answer)))
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    answer["error"] = str(error)
    raise SystemExit(print(json.dumps(answer)))
version = ctypes.c_int()
if cuda.cuDriverGetVersion(ctypes.byref(version)) == 0:
    answer["driver"] = "%d.%d" % (version.value // 1000, version.value % 1000 // 10)
code = cuda.cuInit(0)
code and fail("cuInit", code)
count = ctypes.c_int()
code = cuda.cuDeviceGetCount(ctypes.byref(count))
code and fail("cuDeviceGetCount", code)
answer["count"] = count.value
if count.value == 0:
    answer.update(stage="cuDeviceGetCount", error="no device is visible")
    raise SystemExit(print(json.dumps(answer)))
device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
code = cuda.cuDeviceGet(ctypes.byref(device), 0)
code and fail("cuDeviceGet", code)
name = ctypes.create_string_buffer(256)
cuda.cuDeviceGetName(name, 256, device)
cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, device)
cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, device)
answer.update(name=name.value.decode("utf-8", "replace"), capability="%d.%d" % (major.value, minor.value))
context = ctypes.c_void_p()
code = cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device)
code and fail("cuCtxCreate", code)
cuda.cuCtxDestroy_v2(context)
answer["stage"] = "done"
print(json.dumps(answer))
"""

BUSY_ERRORS = ("CUDA_ERROR_OUT_OF_MEMORY",)  # the GPU works, somebody fills it
UNKNOWN_ERRORS = ("CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA_ERROR_NOT_PERMITTED")  # exclusive mode, or not ours


def parse_answer(output: str, problem: str, error_output: str) -> Dict[str, Any]:
    """{health, health_detail, driver, capability, name}; `problem` is why the child gave no answer."""
    verdict = {"health": "unusable", "health_detail": "", "driver": "", "capability": "", "name": ""}
    if problem:
        return dict(verdict, health_detail="creating a CUDA context: %s" % problem)
    try:
        answer = json.loads(output)
        stage, error = str(answer["stage"]), str(answer["error"])
    except (ValueError, KeyError, TypeError):
        last = error_output.strip().splitlines()[-1:] or ["it died without a word"]
        return dict(verdict, health_detail="creating a CUDA context: %.200s" % last[0])
    for key in ("driver", "capability", "name"):
        verdict[key] = str(answer.get(key, ""))
    if stage == "done":
        return dict(verdict, health="ok")
    if stage == "load":
        return dict(verdict, health="unknown", health_detail="libcuda.so.1 cannot be loaded: %.200s" % error)
    if error in BUSY_ERRORS:
        return dict(verdict, health="ok", health_detail="%s: %s (its memory is full)" % (stage, error))
    health = "unknown" if error in UNKNOWN_ERRORS else "unusable"
    return dict(verdict, health=health, health_detail="%s: %s" % (stage, error))
