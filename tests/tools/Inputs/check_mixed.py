# Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks a file of `ladle bench --mixed`: parts add up to the batch, and ratios
follow from times."""

import argparse
import json


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    options = parser.parse_args()
    with open(options.file) as file:
        document = json.load(file)
    assert document["schema"] == "ladle-bench-mixed-1", document["schema"]
    routes = {result["route"]: result for result in document["results"]}
    assert set(routes) == {"kv_only", "inner"}, routes.keys()
    for route, result in routes.items():
        parts = {part["part"]: part for part in result["parts"]}
        mixed = result["mixed"]
        assert result["nodes"] == 1
        assert mixed["rows"] == sum(part["rows"] for part in parts.values())
        assert mixed["bytes"] == sum(part["bytes"] for part in parts.values())
        # Times are rounded to a nanosecond each.
        for name, key in (("limit_us", "limit_us"), ("alone_us", "us")):
            total = sum(part[key] for part in parts.values())
            assert abs(mixed[name] - total) < 0.005, (mixed, total)
        assert abs(mixed["of_alone"] * mixed["alone_us"] - mixed["us"]) < 0.05
        # A row that folds reads its state and writes it; one without has none.
        of_row = {name: part["bytes"] / part["rows"] for name, part in parts.items()}
        assert of_row["folding"] > 1.5 * of_row["buffered"], of_row
        if route == "kv_only":
            assert of_row["short, no state"] < 0.5 * of_row["buffered"], of_row


if __name__ == "__main__":
    main()
