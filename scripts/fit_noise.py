"""How sharply a drafter's scores should meet the noise at T > 0: tau on the tune prompts for several fits.

    python scripts/fit_noise.py --drafter DIR --fits 1/1,2/1.5,2/2 --budgets 16,64 --temperatures 1 --out FILE

A fit is sharpness/scale of `treegraft_noise` in the drafter's config.json. Report prompts are never read.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from treegraft import logs
from treegraft.bench.workloads import load_prompts, prompt_set_hash
from treegraft.engine.config import EngineConfig
from treegraft.training.evaluate import EvalPrompt, evaluate


def variant(drafter: Path, folder: Path, sharpness: float, scale: float) -> Path:
    """The same drafter with another fit; its weights are linked."""
    document = json.loads((drafter / "config.json").read_text(encoding="utf-8"))
    document["treegraft_noise"] = {"sharpness": sharpness, "scale": scale}
    (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")
    link = folder / "model.safetensors"
    link.unlink(missing_ok=True)
    link.symlink_to((drafter / "model.safetensors").resolve())
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--drafter", type=Path, required=True)
    parser.add_argument("--fits", default="1/1,1.5/1.5,2/1.5,2/2,3/2,3/3")
    parser.add_argument("--budgets", default="16,64")
    parser.add_argument("--temperatures", default="1")
    parser.add_argument("--max-tokens", type=int, default=112)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    logs.configure("warning")
    asked = load_prompts("tune")
    prompts = [EvalPrompt(p.id, p.category, p.text) for p in asked]
    budgets = [int(part) for part in args.budgets.split(",")]
    temperatures = [float(part) for part in args.temperatures.split(",")]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for fit in args.fits.split(","):
            sharpness, scale = (float(part) for part in fit.split("/"))
            config = EngineConfig(args.model, str(variant(args.drafter, Path(name), sharpness, scale)))
            found = evaluate(config, prompts, budgets, temperatures, args.max_tokens)
            tau = {f"T{m.temperature:g} {m.method}": round(m.tau, 3) for m in found.measured if m.category == "all"}
            rows.append({"sharpness": sharpness, "scale": scale, "tau": tau})
            sys.stdout.write(f"{fit:>8}  {json.dumps(tau)}\n")
            sys.stdout.flush()
    if args.out is not None:
        record = {"command": " ".join(["python", *sys.argv]), "prompts": prompt_set_hash(asked), "fits": rows}
        args.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
