"""Which dists the result has: the resolver's versions first, then mended until what is taken can be loaded.

Mending follows evidence only: an extension that would not load names a symbol, version or SONAME; the source dist
whose file provides it moves along, with its indivisible group. Knows the loader model, not how a plan prints.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from treegraft.environments.checks.dists import marker_variables
from treegraft.environments.checks.imports import import_failures
from treegraft.environments.findings import some
from treegraft.environments.inventory import Inventory
from treegraft.environments.loader.imports import ImportFailure, ground_of
from treegraft.environments.loader.world import world_of
from treegraft.environments.planning.choice import Choice, Ends, required_names
from treegraft.environments.planning.evidence import Need, needs_of, provider_in, soname_links
from treegraft.environments.planning.resolution import PatchFolder, Pin, Resolution
from treegraft.environments.planning.result import result_python_facts, result_world
from treegraft.environments.rules.tables import group_of

MAX_ROUNDS = 12


@dataclass(frozen=True)
class Conflict:
    """A need that only a kept dist's replacement could meet."""

    need: Need
    provider: str
    version: str


@dataclass(frozen=True)
class Closure:
    choices: dict[str, Choice]
    conflicts: tuple[Conflict, ...]
    needed: frozenset[str]  # what the taken dists require, directly or not


def close(take: tuple[str, ...], keep: tuple[str, ...], ends: Ends, resolution: Resolution) -> Closure:
    """Choices for every dist of either end that the result has or loses."""
    choices = _initial(take, ends, resolution)
    conflicts: dict[tuple[str, str], Conflict] = {}
    for _ in range(MAX_ROUNDS):
        needed = reachable(take, ends, choices)
        before = dict(choices)
        failing = _failing(ends, choices, needed)
        bystanders = {name for name, _ in failing if choices[name].action == "keep" and name not in needed}
        broken_before = _broken_in_base(bystanders, ends)
        for name, failures in failing:
            if name not in bystanders:
                _mend(name, failures, keep, ends, choices, conflicts)
            elif name not in keep and name not in broken_before:
                _drop(choices, name, failures)
        if choices == before:
            break
    needed = reachable(take, ends, choices)
    return Closure(_with_chains(take, ends, choices), tuple(conflicts.values()), needed)


def _mend(
    name: str,
    failures: list[ImportFailure],
    keep: tuple[str, ...],
    ends: Ends,
    choices: dict[str, Choice],
    conflicts: dict[tuple[str, str], Conflict],
) -> None:
    """Take from the source what has what is missing; else the failing dist itself, whose build there fits."""
    needs = [need for failure in failures for need in needs_of(name, failure)]
    is_met = False
    for need in needs:
        provider = provider_in(ends.source, need)
        if provider is None or choices.get(provider, _NONE).action == "source":
            continue
        is_met = True
        group = _group(provider, ends)
        kept = next((k for k in keep if k in group), None)
        if kept is None:
            _move(choices, provider, need, ends)
        else:
            version = ends.source_dists[kept if kept in ends.source_dists else provider].version
            conflicts.setdefault((name, kept), Conflict(need, kept, version))
    is_movable = choices[name].action in ("keep", "index") and name in ends.source_dists and name not in keep
    if needs and not is_met and is_movable:
        _move(choices, name, needs[0], ends)


def _broken_in_base(names: set[str], ends: Ends) -> set[str]:
    """Those that do not import in the base either."""
    if ends.base is None or not names:
        return set()
    found = import_failures(ground_of(world_of(ends.base)), frozenset(names))
    return {name for name, failures in found if any(level == "block" for _, level in failures)}


def reachable(take: Iterable[str], ends: Ends, choices: dict[str, Choice]) -> frozenset[str]:
    """Names that the taken dists require, directly or not, themselves included."""
    return frozenset(_chains(take, ends, choices))


def _chains(take: Iterable[str], ends: Ends, choices: dict[str, Choice]) -> dict[str, tuple[str, ...]]:
    """Shortest chain of requirements from a taken dist to each name."""
    variables = _variables(ends)
    chains: dict[str, tuple[str, ...]] = {name: (name,) for name in take}
    queue = list(chains)
    for name in queue:
        choice = choices.get(name)
        dist = ends.dist_of(choice) if choice is not None else None
        dist = dist or ends.source_dists.get(name) or ends.base_dists.get(name)
        for required in required_names(dist, variables) if dist is not None else ():
            if required not in chains and required in choices:
                chains[required] = (*chains[name], required)
                queue.append(required)
    return chains


def _with_chains(take: tuple[str, ...], ends: Ends, choices: dict[str, Choice]) -> dict[str, Choice]:
    chains = _chains(take, ends, choices)
    return {
        name: replace(choice, because=choice.because or chains.get(name, ()))
        if choice.action not in ("keep", "drop")
        else choice
        for name, choice in choices.items()
    }


def _initial(take: tuple[str, ...], ends: Ends, resolution: Resolution) -> dict[str, Choice]:
    choices = {
        name: Choice(name, dist.version, "keep", "base", "in the base, and nothing asks for another version")
        for name, dist in ends.base_dists.items()
    }
    pins = {pin.name: pin for pin in resolution.pins} or _fallback_pins(take, ends)
    for name in take:
        taken = _taken(name, ends, pins.get(name))
        if taken is not None:
            choices[name] = taken
    links = soname_links(ends.source) if isinstance(ends.source, Inventory) else {}
    for name, pin in pins.items():
        base = ends.base_dists.get(name)
        if name in take or (base is not None and base.version == pin.version):
            continue
        choices[name] = _fetched(pin, ends, links)
    return choices


def _taken(name: str, ends: Ends, pin: Pin | None) -> Choice | None:
    source = ends.source
    if isinstance(source, PatchFolder):
        version = source.version or (pin.version if pin is not None else "")
        base = ends.base_dists.get(name)
        has_facts = base is not None and base.version == version
        changed = [p for p, h in source.files.items() if p in source.index_files and source.index_files[p] != h]
        added = [p for p in source.files if p not in source.index_files]
        found = f"{len(changed)} modified and {len(added)} added files in {source.path}"
        reason = f"asked for: the patched modules go onto the index wheel of {version or 'an unknown version'}"
        return Choice(name, version, "patch", "base" if has_facts else "", reason, (found,), (name,))
    dist = ends.source_dists.get(name)
    if dist is None:
        return None
    evidence = alterations(source, name)
    what = "with its hand-made changes" if evidence else "as it is there"
    return Choice(name, dist.version, "source", "source", f"asked for, {what}", evidence, (name,))


def _fetched(pin: Pin, ends: Ends, links: dict[str, dict[str, list[str]]]) -> Choice:
    """A dist that the base lacks in this version: from the index, unless only the source's build is known to fit."""
    name, version = pin.name, pin.version
    wanted_by = f"required by {', '.join(pin.required_by[:3])}" if pin.required_by else "required"
    dist = ends.source_dists.get(name)
    if dist is None or dist.version != version or not isinstance(ends.source, Inventory):
        return Choice(name, version, "index", "", f"{wanted_by}; neither end has this version")
    altered = alterations(ends.source, name)
    if altered:
        return Choice(name, version, "source", "source", f"{wanted_by}; altered by hand in the source", altered)
    if not pin.on_index:
        reason = f"{wanted_by}; the index does not have version {version}"
        return Choice(name, version, "source", "source", reason)
    linked = links.get(name, {})
    if linked:
        evidence = tuple(f"{owner}: {', '.join(sorted(sonames)[:3])}" for owner, sonames in linked.items())
        reason = f"{wanted_by}; its files link {', '.join(linked)}, and only the source's build is known to fit"
        return Choice(name, version, "source", "source", reason, evidence)
    return Choice(name, version, "index", "source", f"{wanted_by}; the index has version {version}")


def alterations(source: Inventory, name: str) -> tuple[str, ...]:
    """What differs from the dist's RECORD, one line a kind."""
    environment = source.environment
    assert environment is not None
    dist = next(d for d in environment.dists if d.name == name)
    packages = tuple(f"{root}/{top}/" for root in environment.python.site_packages for top in dist.top_level)
    added = [p for p in environment.unowned if p.startswith(packages)]
    lines = []
    if dist.modified:
        lines.append(f"{len(dist.modified)} modified files: {some([c.path for c in dist.modified])}")
    if added:
        lines.append(f"{len(added)} files that no RECORD lists: {some(added)}")
    return tuple(lines)


def _fallback_pins(take: tuple[str, ...], ends: Ends) -> dict[str, Pin]:
    """Without a resolution: what the taken dists require, as the base has it, else as the source has it."""
    pins: dict[str, Pin] = {}
    variables = _variables(ends)
    queue = list(take)
    for name in queue:
        dist = (ends.base_dists if name not in take else ends.source_dists).get(name) or ends.source_dists.get(name)
        if dist is None or name in pins:
            continue
        pins[name] = Pin(name=name, version=dist.version, on_index=False)
        queue += [n for n in required_names(dist, variables) if n not in pins]
    return pins


def _failing(ends: Ends, choices: dict[str, Choice], needed: frozenset[str]) -> list[tuple[str, list[ImportFailure]]]:
    """Dists of the result whose import is known to fail: those that are new, that are needed, or that require
    something that was replaced."""
    replaced = {n for n, c in choices.items() if c.action != "keep" and n in ends.base_dists}
    world = result_world(ends, choices)
    variables = _variables(ends)
    names = {n for n, c in choices.items() if c.action not in ("keep", "drop")} | (needed & choices.keys())
    if replaced:
        names |= {d.name for d in world.dists if replaced & set(required_names(d, variables))}
    found = []
    for name, failures in import_failures(ground_of(world), frozenset(names)):
        hard = [failure for failure, level in failures if level == "block"]
        if hard:
            found.append((name, hard))
    return found


def _group(provider: str, ends: Ends) -> list[str]:
    """The provider's group: its anchor, what they require or link inside the group, and namesakes in the base."""
    group = group_of(provider)
    if group is None or not isinstance(ends.source, Inventory):
        return [provider]
    variables = _variables(ends)
    links = soname_links(ends.source)
    members = {provider} | ({group.anchor} & ends.source_dists.keys())
    members |= {n for n in ends.source_dists if group.holds(n) and n in ends.base_dists}
    queue = sorted(members)
    for name in queue:
        dist = ends.source_dists.get(name)
        required = [*required_names(dist, variables), *links.get(name, {})] if dist is not None else []
        for other in required:
            if other not in members and group.holds(other) and other in ends.source_dists:
                members.add(other)
                queue.append(other)
    return sorted(members)


def _move(choices: dict[str, Choice], provider: str, need: Need, ends: Ends) -> None:
    """Put the provider's group on the source's side; what the base has of it beyond is dropped."""
    group = group_of(provider)
    version = ends.source_dists[provider].version
    if provider == need.dist:
        cause = f"{need.file} of the base's build needs {need.what}, which is not there any more; the source's fits"
    else:
        cause = f"{need.file} ({need.dist}) needs {need.what}, which {provider} {version} has"
    for name in _group(provider, ends):
        dist = ends.source_dists[name]
        reason = cause if name == provider or group is None else f"moves with {provider}: {group.why}"
        because = tuple(dict.fromkeys((need.dist, provider, name)))
        choices[name] = Choice(name, dist.version, "source", "source", reason, (cause,), because)
    if group is None:
        return
    for name in ends.base_dists:
        if group.holds(name) and name not in ends.source_dists and choices[name].action == "keep":
            reason = f"belongs to the base's {group.name} group, which is replaced by the source's"
            choices[name] = replace(choices[name], action="drop", reason=reason, evidence=(cause,))


def _drop(choices: dict[str, Choice], name: str, failures: list[ImportFailure]) -> None:
    """A dist of the base that nothing taken needs and that what was replaced has broken."""
    chain = " -> ".join(failures[0].chain)
    needs = [need.what for failure in failures for need in needs_of(name, failure)]
    reason = "would not import beside what is replaced, and nothing that is taken needs it"
    evidence = (f"import {chain}: needs {', '.join(dict.fromkeys(needs)) or failures[0].reason}",)
    choices[name] = replace(choices[name], action="drop", reason=reason, evidence=evidence)


def _variables(ends: Ends) -> dict[str, str]:
    return marker_variables(result_python_facts(ends), ends.target.host.system)


_NONE = Choice("", "", "drop", "", "")
