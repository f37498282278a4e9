# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation matches the code: keys and defaults of the variables, links, paths, measurements, derived names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from ansible_collections.accel.gpu.plugins.filter.plan_problems import FilterModule
from ansible_collections.accel.gpu.plugins.module_utils.catalog import mig, models
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.report.data import declared_pool
from ansible_collections.accel.gpu.plugins.module_utils.report.text import lines
from ansible_collections.accel.gpu.plugins.module_utils.vsphere import hosts, templates
from ansible_collections.accel.gpu.plugins.plugin_utils.argument_specs import plain
from lab import rbac
from lab.vsphere.part import VSphere
from tests.pages import module_lists, pictures, report_rules, role_defaults, variables
from tests.pages.files import FILES
from tests.programs import REPO

DOCS = REPO / "docs"
ROLES = sorted(path.parent for path in (REPO / "roles").glob("*/README.md"))
PAGES = [REPO / "README.md", *sorted(DOCS.glob("*.md")), *(role / "README.md" for role in ROLES)]
WITH_REPORT = sorted(
    path.stem
    for path in (REPO / "playbooks").glob("*.yml")
    if "accel.gpu.report" in path.read_text() and path.stem not in module_lists.IMPORTED
)
# A bar ends a cell also in code, unless it is escaped (GitHub Flavored Markdown, "Tables").
CELL_BORDER = re.compile(r"(?<!\\)\|")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
# The README is also read outside the repository, so its links are absolute.
ABSOLUTE = re.compile(
    r"https://(?:github\.com/accel-gpu/accel\.gpu/(?:blob|tree)|raw\.githubusercontent\.com/accel-gpu/accel\.gpu)/main/"
)


@pytest.mark.parametrize("variable", variables.DOCUMENTS)
def test_every_key_of_a_variable_is_described(variable: str) -> None:
    keys = dict(variables.fields(variables.DOCUMENTS[variable]))
    assert [path for path, field in keys.items() if not field.doc.endswith(".")] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(REPO)))
def test_generated_files_are_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == FILES[path](), "run make docs"


def test_the_picture_of_a_report_has_the_style_of_the_page() -> None:
    assert pictures.report_style() in pictures.REPORT.read_text(encoding="utf-8"), "run make picture"


def test_generated_action_plugins_are_up_to_date() -> None:
    assert module_lists.generated_actions() == module_lists.actions(), "run make docs"


@pytest.mark.parametrize("openshift", [False, True], ids=["kubernetes", "openshift"])
@pytest.mark.parametrize("playbook", WITH_REPORT)
def test_a_playbook_with_a_report_has_its_rules(playbook: str, openshift: bool) -> None:
    roles = rbac.objects(playbook, openshift=openshift)
    rules = [rule for role in roles if role["kind"] == "ClusterRole" for rule in role["rules"]]
    assert [rule for rule in report_rules.rules() if rule not in rules] == []


@pytest.mark.parametrize("role", sorted(path.parents[1].name for path in role_defaults.PAGES))
def test_the_default_that_is_a_template_is_that_of_the_vars(role: str) -> None:
    """It may be wrapped, and role_options gets its value instead of the template."""
    path = REPO / "roles" / role / "vars" / "main.yml"
    values = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    templates: dict[str, str] = values.get(f"__{role}_computed_defaults", {})
    defaults = yaml.safe_load((REPO / "roles" / role / "defaults" / "main.yml").read_text(encoding="utf-8"))
    assert {name: defaults[name].split() for name in templates} == {
        name: text.split() for name, text in templates.items()
    }


def test_comments_have_no_markup() -> None:
    text = "The option O(accel.gpu.a#module:b=c), O(x), the role P(accel.gpu.pools#role), V(none) or C(f(1))."
    assert plain(text) == "The option b=c of accel.gpu.a, x, the role accel.gpu.pools, none or f(1)."


def anchors(text: str) -> set[str]:
    """The anchors of the headings."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_the_rows_of_a_table_have_as_many_cells_as_its_header(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        header, *rows = table.splitlines()
        cells = len(CELL_BORDER.findall(header))
        assert [row for row in rows if len(CELL_BORDER.findall(row)) != cells] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_links_have_targets(page: Any) -> None:
    for target, fragment in LINK.findall(ABSOLUTE.sub("", page.read_text(encoding="utf-8"))):
        actual = (page.parent / target) if target else page
        assert actual.exists(), target
        assert not fragment or fragment in anchors(actual.read_text(encoding="utf-8")), f"{target}#{fragment}"


@pytest.mark.parametrize("page", ["architecture.md", "catalog.md", "testing.md"])
def test_the_files_that_a_page_names_exist(page: str) -> None:
    folders = "plugins|roles|playbooks|molecule|examples|meta|lab|tests|tools"
    text = (DOCS / page).read_text(encoding="utf-8")
    paths = re.findall(rf"`((?:{folders})/[^` ]*)`", text)
    names = re.findall(r"`(\w+\.py)`", text)
    assert [path for path in paths if not (REPO / path).exists()] == []
    assert [name for name in names if not any(any((REPO / top).rglob(name)) for top in ("plugins", "tests"))] == []


def test_the_functions_and_constants_that_the_architecture_page_names_exist() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`(?:\w+\.)*(_?[a-z]\w+)\(\)`", text)) | set(re.findall(r"`(_?[A-Z][A-Z_]+)`", text))
    code = "".join(
        path.read_text(encoding="utf-8")
        for top in ("plugins", "lab", "tests")
        for ending in ("py", "go")
        for path in (REPO / top).rglob(f"*.{ending}")
    )
    defined = set(
        re.findall(r"\b(?:def|func(?: \([^)]*\))?) (\w+)\(|^ *(?:\w+, )*\*?(_?[A-Z][A-Z_]+)\b.*=", code, re.MULTILINE)
    )
    assert len(names) > 4
    assert sorted(names - {name for pair in defined for name in pair}) == []


def test_the_architecture_page_names_the_file_that_defines_a_function_class_or_constant() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    name = r"`(?:_?[A-Z]\w*|\w+\(\))`"
    places = re.findall(rf"({name}(?:(?:, | and | or ){name})*) in `((?:plugins|lab)/[^` ]+\.py)`", text)
    named = [(each, path) for names, path in places for each in re.findall(r"`(\w+)", names)]
    assert len(named) > 20
    missing = [
        (each, path)
        for each, path in named
        if not re.search(
            rf"^(?:(?:def|class) {each}\b|(?:\w+, )*{each}(?:, \w+)*(?::.*)? =)",
            (REPO / path).read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    ]
    assert missing == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_the_page_of_a_role_lists_its_variables(role: Path) -> None:
    page = (role / "README.md").read_text(encoding="utf-8")
    defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text(encoding="utf-8"))
    assert [name for name in defaults if f"\n| `{name}` |" not in page] == []


def blocks(page: str, heading: str) -> list[str]:
    """The fenced blocks of variables and output below this heading."""
    section = (REPO / page).read_text(encoding="utf-8").partition(heading)[2]
    return re.findall(r"```(?:yaml|text|console)\n(.*?)```", section, re.DOTALL)


def problems(variables: str) -> list[str]:
    """The result of the filter plan_problems for these variables, as YAML."""
    messages: list[str] = FilterModule().filters()["plan_problems"](yaml.safe_load(variables))
    return messages


@pytest.mark.parametrize(
    ("page", "heading"),
    [("docs/pools.md", "## Validation of the variables"), ("roles/pools/README.md", "## Messages")],
)
def test_the_messages_of_the_variables_are_those_of_the_code(page: str, heading: str) -> None:
    variables, messages = blocks(page, heading)[:2]
    assert problems(variables) == messages.splitlines()


def test_the_message_about_a_secret_is_that_of_the_code() -> None:
    [message] = blocks("docs/secrets.md", "## Helm values must not contain secrets")[:1]
    values = "{driver: {licensingConfig: {token: eyJhbGciOiJIUzI1NiJ9}}}"
    assert message.rstrip() in problems(f"{{gpu_cluster: {{operator: {{values: {values}}}}}, gpu_pools: []}}")


def test_the_messages_in_the_documentation_of_plan_problems_are_those_of_the_code() -> None:
    pool = "{name: p, match: {model: T4}, sharing: %s}"
    given = ["{mode: timeslicing}", "{mode: none}", "{mode: time-slicing, replicas: 1}"]
    messages = problems(f"gpu_pools: [{', '.join(pool % sharing for sharing in given)}]")
    text = (REPO / "plugins" / "filter" / "plan_problems.py").read_text(encoding="utf-8")
    [sample] = yaml.safe_load(re.findall(r'RETURN = r"""\n(.*?)"""', text, re.DOTALL)[0])["_value"]["sample"]
    assert sample in messages
    example = " ".join(
        re.findall(r"^# (.*)$", re.findall(r'EXAMPLES = r"""\n(.*?)"""', text, re.DOTALL)[0], re.MULTILINE)
    )
    assert example in messages


@pytest.mark.parametrize(("page", "heading"), [("docs/pools.md", "# Pools"), ("docs/modes.md", "The plan shows")])
def test_the_quoted_plan_is_that_of_the_quoted_pools(page: str, heading: str) -> None:
    """Without a cluster, as the plan shows it first; the block may leave lines out."""
    variables, output = blocks(page, heading)[:2]
    document = yaml.safe_load(variables)
    host = document["gpu_clusters"]["hosts"]["prod"] if "gpu_clusters" in document else document
    pools = {pool.name: declared_pool(pool) for pool in derive({"name": "prod"}, {}, host["gpu_pools"]).pools}
    shown = iter(lines({"cluster": "prod", "reachable": False, "pools": pools}, "plan"))
    assert [line for line in output.splitlines()[1:] if line not in shown] == []


def table(page: str, head: str) -> list[list[str]]:
    """The cells of the table with this header."""
    body = (DOCS / page).read_text(encoding="utf-8").partition(f"\n| {head}")[2].partition("\n\n")[0]
    assert body, f"{page} has no table that begins with {head}"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()[2:]]


def test_the_documented_privileges_in_vcenter_are_those_that_the_code_checks() -> None:
    assert [set(re.findall(r"`([^`]+)`", cell)) for _object, cell in table("vsphere.md", "object | privileges")] == [
        set(templates.FOLDER_PRIVILEGES),
        set(templates.PARENT_PRIVILEGES),
        set(templates.POOL_PRIVILEGES),
        set(templates.DATASTORE_PRIVILEGES),
        set(templates.NETWORK_PRIVILEGES),
        {hosts.UPDATE_PRIVILEGE, hosts.RESTART_PRIVILEGE},
    ]


def test_the_faults_and_settings_of_the_simulated_vcenter_are_those_of_the_lab() -> None:
    simulator = "".join(path.read_text(encoding="utf-8") for path in (REPO / "lab" / "vcsim").glob("*.go"))
    constants = re.search(r"The faults by name.*\nconst \(\n([^)]*)\)", simulator)
    assert constants is not None
    implemented = dict(re.findall(r'(\w+) += "(.+)"', constants[1]))
    assert list(implemented.values()) == list(VSphere.faults)
    assert [name for name in implemented if len(re.findall(rf"\b{name}\b", simulator)) < 2] == []
    faults = table("lab-vsphere.md", "fault | effect")
    assert [name.strip("`") for name, _effect in faults] == list(VSphere.faults)
    settings = table("lab-vsphere.md", "setting | default")
    assert {name.strip("`"): default for name, default, _meaning in settings} == {
        name: setting.default for name, setting in VSphere.settings.items()
    }


def test_the_measured_tables_are_the_catalogs() -> None:
    busy = [
        [row.mode, row.load, f"{row.pods}", f"{row.share:.3f}", f"{row.share * row.pods:.3f}"] for row in models.BUSY
    ]
    shown = table("modes.md", "mode | load")
    assert [row[:5] for row in shown] == busy
    assert [row[5] for row in shown] == [f"{row.fairness:.3f}" for row in models.BUSY]
    waiting = [[row.mode, f"{row.busy}", f"{row.median_ms:.2f}", f"{row.p99_ms:.2f}"] for row in models.WAITING]
    assert table("modes.md", "mode | busy") == waiting
    losses = [[row.step, list(row.per_cent)] for row in (*models.WEBINAR_TIME_SLICING, models.WEBINAR_MIG)]
    assert [[step, [*map(float, text.split(", "))]] for step, text in table("modes.md", "step")] == losses
    geometry = mig.geometry("H200")
    assert geometry is not None
    profiles = [p for p in sorted(geometry.profiles, key=lambda p: (p.compute, p.size)) if p.media == "share"]
    devices = [
        [p.name, f"{models.SMS_BY_MODEL['H200'][1][p.id]}", f"{models.MIB_BY_MODEL['H200'][p.id]}"] for p in profiles
    ]
    assert table("modes.md", "profile | SMs") == devices


def test_the_names_of_each_mode_are_those_that_are_derived() -> None:
    for sharing, *reported in table("modes.md", "`sharing` | resource"):
        document = {"name": "p", "match": {"model": "A100-SXM4-40GB"}, "sharing": yaml.safe_load(sharing.strip("`"))}
        [pool] = derive({"name": "c"}, {}, [document]).pools
        derived = [*map(ticked, (pool.resources, pool.quota_keys)), f"{pool.shares_per_gpu}", f"`{pool.accelerator}`"]
        assert reported == derived


def ticked(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def test_the_changelog_lists_every_plugin_and_role() -> None:
    release = yaml.safe_load((REPO / "changelogs" / "changelog.yaml").read_text(encoding="utf-8"))["releases"]["0.1.0"]
    listed = {
        "modules": release["modules"],
        "filter": release["plugins"]["filter"],
        "inventory": release["plugins"]["inventory"],
        "lookup": release["plugins"]["lookup"],
        "roles": release["objects"]["role"],
    }
    existing = {
        "modules": {path.stem for path in (REPO / "plugins" / "modules").glob("*.py")},
        "filter": {path.stem for path in (REPO / "plugins" / "filter").glob("*.py")},
        "inventory": {path.stem for path in (REPO / "plugins" / "inventory").glob("*.py")},
        "lookup": {path.stem for path in (REPO / "plugins" / "lookup").glob("*.py")},
        "roles": {path.name for path in (REPO / "roles").iterdir()},
    }
    # antsibull-changelog release --update-existing --reload-plugins --refresh-plugins --version 0.1.0
    assert {kind: {entry["name"] for entry in entries} for kind, entries in listed.items()} == existing
    # antsibull-changelog generate
    page = (REPO / "CHANGELOG.md").read_text(encoding="utf-8").replace("\\", "")
    assert [name for names in existing.values() for name in sorted(names) if f"accel.gpu.{name} - " not in page] == []


def tasks(value: Any) -> Iterator[dict[str, Any]]:
    """Each map at any depth of a YAML document: tasks, and plays with their module_defaults."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from tasks(inner)


def examples() -> Iterator[tuple[str, str]]:
    """The YAML that users copy, with its place: EXAMPLES of plugins, and fenced blocks of the pages."""
    for path in sorted((REPO / "plugins").glob("*/*.py")):
        match = re.search(r'^EXAMPLES = r"""\n(.*?)^"""', path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        if match:
            yield path.name, match[1]
    for path in [REPO / "README.md", *sorted(DOCS.glob("*.md")), *sorted((REPO / "roles").glob("*/README.md"))]:
        for block in re.findall(r"^```yaml\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            yield path.name, block


@pytest.mark.usual(10)
def test_examples_use_options_that_exist() -> None:
    options = {
        f"accel.gpu.{name}": {
            known for option, about in doc["options"].items() for known in (option, *about.get("aliases", ()))
        }
        for name, doc in module_lists.documentation().items()
    }
    groups = yaml.safe_load((REPO / "meta" / "runtime.yml").read_text(encoding="utf-8"))["action_groups"]
    for group, members in groups.items():
        options[f"group/accel.gpu.{group}"] = set.intersection(*(options[f"accel.gpu.{member}"] for member in members))
    wrong = [
        f"{place}: {name} has no option {option}"
        for place, text in examples()
        for task in tasks(yaml.safe_load(text))
        for name, args in task.items()
        if name in options and isinstance(args, dict)
        for option in set(args) - options[name]
    ]
    assert not wrong
    shown = {name for place, text in examples() for task in tasks(yaml.safe_load(text)) for name in task}
    assert shown >= {f"group/accel.gpu.{group}" for group in groups}, (
        "an example of module_defaults for each action group"
    )


def test_example_plays_use_the_interpreter_of_ansible_playbook() -> None:
    """It has the libraries of the modules; a discovered interpreter may not."""
    plays = [
        (place, play)
        for place, text in examples()
        for document in [yaml.safe_load(text)]
        for play in (document if isinstance(document, list) else ())
        if "hosts" in play
    ]
    assert len(plays) >= 11
    interpreter = {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}
    assert [place for place, play in plays if not (play.get("vars") or {}).items() >= interpreter.items()] == []


def test_the_example_of_an_execution_environment_has_the_collection_and_its_dependencies() -> None:
    def load(path: str) -> Any:
        return yaml.safe_load((REPO / path).read_text(encoding="utf-8"))

    example, own = load("examples/execution-environment.yml"), load("meta/execution-environment.yml")["dependencies"]
    collections = {entry["name"]: entry["version"] for entry in example["dependencies"]["galaxy"]["collections"]}
    # The Python libraries need no entry: ansible-builder reads `own` of each collection that it has installed.
    assert SpecifierSet(collections.pop("accel.gpu")).contains(load("galaxy.yml")["version"])
    assert collections == {entry["name"]: entry["version"] for entry in load(own["galaxy"])["collections"]}
    assert (REPO / own["python"]).exists()
    assert example["version"] == 3
    assert example["dependencies"].keys() >= {"ansible_core", "ansible_runner", "python_interpreter"}
    assert "helm" in str(example["additional_build_steps"])


def returned(fields: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each return value at any depth."""
    for name, about in fields.items():
        yield f"{path}{name}", about
        yield from returned(about.get("contains") or {}, f"{path}{name}.")


def plugins(kind: str) -> list[Path]:
    """The files of this kind of plugin."""
    return sorted((REPO / "plugins" / kind).glob("[a-z]*.py"))


def test_every_module_and_filter_has_see_also() -> None:
    without = [
        path.name
        for path in (*plugins("modules"), *plugins("filter"))
        if "\nseealso:\n" not in path.read_text(encoding="utf-8").partition("\nEXAMPLES")[0]
    ]
    assert without == []


@pytest.mark.parametrize("kind", ["modules", "filter"])
def test_return_values_have_samples(kind: str) -> None:
    """A map whose keys are documented has the samples of its keys. A filter always returns its value; a module's documentation states when."""
    wrong = []
    for path in sorted((REPO / "plugins" / kind).glob("*.py")):
        match = re.search(r'^RETURN = r"""\n(.*?)^"""', path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        values = yaml.safe_load(match[1]) if match else {}
        # print_lines only prints: it fails as Ansible's own modules do.
        if kind == "modules" and not {"code", "details"} <= set(values) and path.stem != "print_lines":
            wrong.append(f"{path.name}: code and details of failures are not documented")
        for name, about in returned(values):
            if ("contains" in about) == ("sample" in about):
                wrong.append(f"{path.name}: {name} must have a sample, or keys with samples")
            if kind == "modules" and "returned" not in about:
                wrong.append(f"{path.name}: {name} has no returned")
    assert not wrong


# Texts of other programs in the table of messages.
FOREIGN = {"Connection refused", "could not insert", "No such device"}
# What a message inserts, and what separates its parts.
INSERTED = re.compile(r"\.\.\.|\bN\b|\bbecause\b|\d+|'[^']*'|: |, |\bgpu_[\w.]+|\bkubeconfig\b")


def texts_of_the_code() -> str:
    """All texts of the plugins, roles and playbooks, with a NUL character for each inserted value."""
    actual = []
    for path in (REPO / "plugins").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                actual.append("".join(str(v.value) if isinstance(v, ast.Constant) else "\0" for v in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                actual.append(node.value)
    for folder in ("roles", "playbooks"):
        for path in (REPO / folder).rglob("*.yml"):
            actual.append(re.sub(r"\{\{.*?\}\}", "\0", re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))))
    return "\n".join(actual)


def test_the_messages_that_troubleshoot_explains_are_those_of_the_code() -> None:
    code = texts_of_the_code()
    parts = [
        part.strip(" ().;?`")
        for cells in table("troubleshoot.md", "message | what to do")
        for message in re.findall(r"`([^`]+)`", cells[0])
        for part in INSERTED.split(message)
    ]
    assert len(parts) > 50
    assert [part for part in parts if part not in code and part not in FOREIGN] == []
