"""Layers of the chunks of layouts, by Megatron-core.

    python3 tools/oracle/pipeline_layout.py tests/golden/pipeline_layouts.json

Needs megatron-core 0.16.1 (pip). The string form of --pipeline-model-parallel-layout is parsed by
PipelineParallelLayerLayout.
"""
import importlib.metadata
import json
import sys

from megatron.core.transformer.enums import LayerType
from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout

LAYOUTS = [
    ("EttL", 1),
    ("Ett|ttL", 2),
    ("Et|ttt|tt|tL", 4),
    ("Et|ttt|tt|tL", 2),
    ("Et*3|(tt|)*29tL", 31),
    ("E,t*2|t*3,|(t|)*2,t*4,L", 5),
    ("E(tt|t)*2,t|tL", 2),
    ("Et|t*10|tL", 3),
    ("E(t|tt|)*3t*2L", 7),
]


def layers_of(layout, stages):
    parsed = PipelineParallelLayerLayout(layout, stages)
    parsed.validate_layer_layout(parsed.flatten_layout.count(LayerType.decoder), None)
    chunks = parsed.virtual_pipeline_model_parallel_size * stages
    return [parsed.layout[chunk % stages][chunk // stages].count(LayerType.decoder) for chunk in range(chunks)]


def main():
    layouts = [{"layout": layout, "stages": stages, "layers": layers_of(layout, stages)} for layout, stages in LAYOUTS]
    origin = f"tools/oracle/pipeline_layout.py, megatron-core {importlib.metadata.version('megatron-core')}"
    with open(sys.argv[1], "w") as file:
        json.dump({"origin": origin, "layouts": layouts}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
