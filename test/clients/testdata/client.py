# SPDX-License-Identifier: Apache-2.0
"""Does with a resource what clients do: client.py KUBECONFIG CASE. Prints each step, and ends at the first that went wrong."""
import json
import sys

from kubernetes import __version__, client, config, dynamic

case = json.loads(sys.argv[2])
run, namespace = case["run"], case["namespace"] or None
mine = "run=" + run  # items of others may be beside
dynamic_client = dynamic.DynamicClient(config.new_client_from_config(sys.argv[1]))
api = dynamic_client.resources.get(api_version=case["apiVersion"], kind=case["kind"])


def same(what, got, want):
    if got != want:
        sys.exit(f"{what}: got {got!r}, want {want!r}")


def refused(code, reason, call, **kwargs):
    """The call must raise an ApiException whose body is a Status, which is returned."""
    try:
        got = call(**kwargs)
    except client.ApiException as e:
        status = json.loads(e.body)
        same("error", (e.status, status["kind"], status["code"], status["reason"]), (code, "Status", code, reason))
        return status
    sys.exit(f"got {got}, want {code} {reason}")


def new(name, **labels):
    return {"apiVersion": case["apiVersion"], "kind": case["kind"], "spec": case["spec"],
            "metadata": {"name": f"{run}-{name}", "labels": dict(labels, run=run)}}


def get(name):
    return api.get(name=f"{run}-{name}", namespace=namespace)


def merge(name, patch):
    return api.patch(name=f"{run}-{name}", namespace=namespace, body=patch, content_type="application/merge-patch+json")


def names(**options):
    listed = api.get(namespace=namespace, **options)
    same("kind", listed.kind, case["kind"] + "List")
    return [o.metadata.name.removeprefix(run + "-") for o in listed.items]


def create():
    for i, name in enumerate("abcde"):
        created = api.create(body=new(name, odd=str(i % 2)), namespace=namespace)
        same("uid by get", get(name).metadata.uid, created.metadata.uid)


def read():
    same("list", names(label_selector=mine), list("abcde"))
    same("label selector", names(label_selector=mine + ",odd=1"), ["b", "d"])
    custom = client.CustomObjectsApi(dynamic_client.client)
    group, version = case["apiVersion"].split("/")
    if namespace:
        listed = custom.list_namespaced_custom_object(group, version, namespace, case["resource"], label_selector=mine)
    else:
        listed = custom.list_cluster_custom_object(group, version, case["resource"], label_selector=mine)
    same("CustomObjectsApi", len(listed["items"]), 5)


def pages():
    token, found = None, []
    while token != "":
        page = api.get(namespace=namespace, label_selector=mine, limit=2, _continue=token)
        token = page.metadata["continue"] or ""
        found.append([o.metadata.name.removeprefix(run + "-") for o in page.items])
    same("pages", found, [["a", "b"], ["c", "d"], ["e"]])


def merge_patch():
    spec = merge("b", {"spec": case["change"]}).to_dict()["spec"]
    same("changed", {**spec, **case["change"]}, spec)
    same("field selector", names(label_selector=mine, field_selector=case["fieldSelector"]), ["b"])


def apply():
    def apply_as(manager, **options):
        body = new("a", owner=manager)
        if int(__version__.split(".")[0]) < 25:  # it takes this body as text only
            body = json.dumps(body)
        return api.server_side_apply(body=body, name=run + "-a", namespace=namespace, field_manager=manager, **options)

    managers = [(m.manager, m.operation) for m in apply_as("first").metadata.managedFields]
    same("first of the managers", ("first", "Apply") in managers, True)
    status = refused(409, "Conflict", apply_as, manager="second")
    same("conflict", [c["field"] for c in status["details"]["causes"]], [".metadata.labels.owner"])
    same("forced", apply_as("second", force_conflicts=True).metadata.labels.owner, "second")


def replace():
    old = get("c").to_dict()
    merge("c", {"metadata": {"labels": {"step": "replace"}}})
    refused(409, "Conflict", api.replace, body=old, namespace=namespace)
    body = get("c").to_dict()
    body["spec"].update(case["change"])
    same("replaced", api.replace(body=body, namespace=namespace).to_dict()["spec"], body["spec"])


def errors():
    refused(404, "NotFound", get, name="missing")
    refused(409, "AlreadyExists", api.create, body=new("a"), namespace=namespace)
    status = refused(422, "Invalid", api.create, body=dict(new("x"), spec=case["invalid"]), namespace=namespace)
    same("causes", [c["field"] for c in status["details"]["causes"]], [case["invalidField"]])
    other = dynamic_client.resources.get(api_version=case["apiVersion"], kind=case["forbidden"])
    refused(403, "Forbidden", other.get, namespace=namespace)


def watch():
    version = api.get(namespace=namespace, label_selector=mine).metadata.resourceVersion
    # A minute is a deadline: the server ends the watch then. Each change is made when the one before it was seen.
    events = api.watch(namespace=namespace, label_selector=mine, resource_version=version, timeout=60)
    for want, change in {
        "ADDED": lambda: api.create(body=new("w"), namespace=namespace),
        "MODIFIED": lambda: merge("w", {"spec": case["change"]}),
        "DELETED": lambda: api.delete(name=run + "-w", namespace=namespace),
    }.items():
        change()
        event = next(events, None) or sys.exit(f"the watch ended after a minute, want {want}")
        same("event", (event["type"], event["object"].metadata.name), (want, run + "-w"))


def delete():
    same("response", api.delete(name=run + "-e", namespace=namespace).status, "Success")
    refused(404, "NotFound", get, name="e")
    api.delete(namespace=namespace, label_selector=mine + ",odd=1")
    same("after deletecollection of some", names(label_selector=mine), ["a", "c"])
    api.delete(namespace=namespace, label_selector=mine)
    same("after deletecollection of all", names(label_selector=mine), [])


for step in create, read, pages, merge_patch, apply, replace, errors, watch, delete:
    print(step.__name__, flush=True)
    step()
