"""A small copy of the story: a source with a patched sglang and torch +cu130, a base with torch +cu128, an index.

Wheels are toys with real compiled libraries; both environments are probed as real ones are. GPUs are synthetic facts
put over the inventories, as no GPU is asked here.
"""

from dataclasses import dataclass
from pathlib import Path

from worlds.compiling import Compiler, Link, Native
from worlds.fatbins import with_gpu_code
from worlds.venvs import Python, Venv
from worlds.wheels import Wheel

from treegraft.environments.inventory import Inventory

CHECK = (
    "namespace c10 {{ namespace cuda {{\n"
    "void c10_cuda_check_implementation(int error, const char* file, {line}) {body}\n"
    "}} }}\n"
)
SGLANG = {
    "sglang/__init__.py": "__version__ = '0.5.17'\n",
    "sglang/srt/__init__.py": "",
    "sglang/srt/server_args.py": "ALGORITHMS = ['EAGLE', 'DFLASH']\n",
    "sglang/srt/speculative/__init__.py": "",
    "sglang/srt/speculative/spec_info.py": "NAMES = ('EAGLE',)\n",
}
PATCHED = {
    "sglang/srt/server_args.py": "ALGORITHMS = ['EAGLE', 'DFLASH', 'DDTREE']\n",
    "sglang/srt/speculative/spec_info.py": "NAMES = ('EAGLE', 'DDTREE')\n",
}
ADDED = {
    f"sglang/srt/speculative/{name}.py": f"# {name}\n"
    for name in ("dflash_worker", "dflash_info", "dflash_utils", "ddtree_utils")
}


@dataclass(frozen=True)
class Toys:
    """Makes the wheels of one CUDA flavour."""

    compiler: Compiler
    python: Python
    gpu: tuple[str, ...] = ("sm_86", "sm_120")

    def cuda(self, major: int) -> Native:
        return self.compiler.library("int cudaMalloc(void) { return 0; }\n", Link(soname=f"libcudart.so.{major}"))

    def c10_cuda(self, major: int) -> Native:
        line = "unsigned int line" if major == 13 else "int line"
        source = CHECK.format(line=line, body="{}")
        rpath = "$ORIGIN/../../nvidia/cu13/lib" if major == 13 else "$ORIGIN/../../nvidia/cuda_runtime/lib"
        link = Link(soname="libc10_cuda.so", needs=[self.cuda(major)], rpath=rpath, old_rpath=True, cplusplus=True)
        return self.compiler.library(source, link)

    def extension(self, module: str, source: str, **link: object) -> bytes:
        made = self.compiler.extension(module, source, Link(cplusplus=True, **link), str(self.python.include))  # type: ignore[arg-type]
        return made.data

    def torch(self, major: int) -> list[Wheel]:
        """torch, its nvidia library, triton and torchvision of one flavour."""
        flavour = "cu130" if major == 13 else "cu128"
        c10 = self.c10_cuda(major)
        suffix, tag = self.python.extension_suffix, self.python.tag
        runtime = "nvidia-cuda-runtime" if major == 13 else "nvidia-cuda-runtime-cu12"
        place = "nvidia/cu13/lib" if major == 13 else "nvidia/cuda_runtime/lib"
        runtime_version = "13.0.96" if major == 13 else "12.8.90"
        vision = self.use_c10("_C", major)
        return [
            Wheel(
                "torch",
                f"2.11.0+{flavour}",
                {
                    "torch/__init__.py": "from . import _C\n",
                    f"torch/_C{suffix}": self.extension("_C", "", needs=[c10], rpath="$ORIGIN/lib"),
                    "torch/lib/libc10_cuda.so": with_gpu_code(c10.data, self.gpu),
                },
                (f"{runtime}=={runtime_version}", "triton==3.6.0"),
                tag=tag,
            ),
            Wheel(runtime, runtime_version, {f"{place}/libcudart.so.{major}": self.cuda(major).data}, tag=tag),
            Wheel("triton", "3.6.0", {"triton/__init__.py": f"BUILD = '{flavour}'\n"}, tag=tag),
            Wheel(
                "torchvision",
                f"0.26.0+{flavour}",
                {"torchvision/__init__.py": "import torch\nfrom . import _C\n", f"torchvision/_C{suffix}": vision},
                ("torch==2.11.0",),
                tag=tag,
            ),
        ]

    def use_c10(self, module: str, major: int) -> bytes:
        """An extension that calls libc10_cuda and finds it only when torch is loaded."""
        line = "unsigned int line" if major == 13 else "int line"
        source = (
            CHECK.format(line=line, body=";")
            + "int go() { c10::cuda::c10_cuda_check_implementation(0, 0, 1); return 0; }\n"
        )
        return with_gpu_code(self.extension(module, source, needs=[self.c10_cuda(major)]), self.gpu)

    def sgl_kernel(self, major: int) -> Wheel:
        files = {"sgl_kernel/__init__.py": "import torch\nfrom . import common_ops\n"}
        data = self.use_c10("common_ops", major)
        return Wheel(
            "sgl-kernel", "0.4.5", {**files, "sgl_kernel/common_ops.abi3.so": data}, ("torch",), tag=self.python.tag
        )

    def sglang(self) -> Wheel:
        return Wheel(
            "sglang", "0.5.17", SGLANG, ("torch==2.11.0", "sgl-kernel==0.4.5", "pydantic-toy>=2", "torchvision")
        )


def pydantic_toy(version: str = "2.1") -> Wheel:
    return Wheel("pydantic-toy", version, {"pydantic_toy/__init__.py": f"VERSION = '{version}'\n"})


@dataclass(frozen=True)
class Story:
    """source: A's environment. base: B's training environment. shell: B's empty one. index: folder of wheels."""

    source_venv: Venv
    base_venv: Venv
    source: Inventory
    base: Inventory
    shell: Inventory
    index: Path
    toys: Toys
