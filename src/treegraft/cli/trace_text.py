"""A round's draft tree as text: one node a line, indented by depth, the accepted path marked. Knows no engine."""

from collections.abc import Callable

from treegraft.cli.output import visible
from treegraft.speculation.accept import Acceptance
from treegraft.speculation.tree import DraftTree


def tree_lines(root_token: int, tree: DraftTree, acceptance: Acceptance, text_of: Callable[[int], str]) -> list[str]:
    """Children stand below their parent, heavier first. `*` marks what the target accepted; `->` is the bonus token,
    below the node that it follows. Each node: its text, its own log-probability and that of its path."""
    accepted = set(acceptance.path.tolist())
    last = int(acceptance.path[-1]) if len(acceptance.path) else -1
    lines = [f"  {_quoted(text_of(root_token))} (root)"]

    def add(node: int, depth: int) -> None:
        for child in tree.children(node).tolist():
            own = float(tree.log_probs[child]) - (float(tree.log_probs[node]) if node >= 0 else 0.0)
            mark = "*" if child in accepted else " "
            text = _quoted(text_of(int(tree.token_ids[child])))
            lines.append(f"{mark} {'  ' * depth}{text}  {own:.2f}  (path {tree.log_probs[child]:.2f})")
            add(child, depth + 1)
        if node == last:
            lines.append(f"  {'  ' * depth}-> {_quoted(text_of(acceptance.bonus))}")

    add(-1, 1)
    return lines


def _quoted(text: str) -> str:
    return f'"{visible(text)}"'
