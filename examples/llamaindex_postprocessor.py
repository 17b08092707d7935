"""Answers from a user's documents and from what the user said, ranked together by what answers cited before.

python examples/llamaindex_postprocessor.py                             offline, no key
python examples/llamaindex_postprocessor.py --model openai:gpt-4o-mini  with a chat model of yours
"""

from __future__ import annotations

from _llamaindex_models import BundledEmbedding
from _llamaindex_options import choice
from _talk import bank, rests_on, says, session
from llama_index.core import VectorStoreIndex
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import TextNode

from llamaindex_rmm import CITING_QA_TEMPLATE, CitationOutputParser, RMMNodePostprocessor, RMMRetriever, open_memory

MANUAL = (
    "Descale the espresso machine every two months. With hard water, descale it every month.",
    "Fill the tank with cold water up to the line. Never use sparkling water.",
    "The red lamp blinks when the drip tray is full.",
    "Beans are ground finest at level 1. Level 5 suits most espresso roasts.",
    "The guarantee lasts three years from the day of purchase.",
)
SAID = (
    "The water in our village is very hard, everything gets covered in limescale.",
    "I descaled the espresso machine on 2 February.",
    "I keep the receipt of the machine in the blue folder.",
    "I like my coffee ground at level 3, everything else tastes sour to me.",
)
QUESTIONS = (
    "How often must a machine with hard water be descaled?",
    "When did I descale the espresso machine?",
    "Why does the red lamp blink?",
    "Where do I keep the receipt?",
    "How long does the guarantee last?",
    "At which level do I like my coffee ground?",
    "Who won the match yesterday?",
)


def main() -> None:
    """What the user told in a chat, and a manual; then questions that one of the two can answer."""
    with choice(__doc__) as chosen:
        embed_model = BundledEmbedding(embedder=chosen.embeddings)  # one for both, as your app has one
        with open_memory(chosen.db, llm=chosen.reflects, embed_model=embed_model, config=chosen.config) as memory:
            session("In a chat, some time ago")
            with memory.chat("emil", user_name="Emil") as chat:
                for text in SAID:
                    says("Emil", text)
                    chat.record(text, "Thank you.")

            manual = VectorStoreIndex([TextNode(text=text) for text in MANUAL], embed_model=embed_model)
            both = QueryFusionRetriever(
                [manual.as_retriever(similarity_top_k=3), RMMRetriever(memory, user_id="emil")],
                llm=chosen.model,
                similarity_top_k=10,  # all that the two find; who comes first is up to the postprocessor
                num_queries=1,
                use_async=False,
            )
            engine = RetrieverQueryEngine(
                retriever=both,
                node_postprocessors=[RMMNodePostprocessor(memory=memory, user_id="emil", cite=True)],
                response_synthesizer=get_response_synthesizer(llm=chosen.model, text_qa_template=CITING_QA_TEMPLATE),
            )

            session("Today")
            for text in QUESTIONS:
                says("Emil", text)
                response = engine.query(text)
                answer = CitationOutputParser().parse(str(response)).citing(response.source_nodes)
                answer.feedback(memory)
                says("App", answer.text)
                rests_on(hit.node.metadata.get("summary") or f"the manual: {hit.text}" for hit in answer.cited)

            bank(memory, "emil")


if __name__ == "__main__":
    main()
