"""The figures that the paper reports (Tan et al., ACL 2025), in percent, to stand beside ours.

Other models, other retrievers, LongMemEval's own questions: read them for the order of methods, not for the level.
"""

from __future__ import annotations

LONGMEMEVAL_R5 = {  # table 1; Contriever where a retriever is needed
    "rag-turn": 54.3,
    "memorybank": 58.6,
    "ld-agent": 56.8,
    "rmm-paper": 60.4,
    "oracle": 100.0,
}
ABLATION_R5 = {"rag-turn": 54.3, "pr": 57.4, "rr-retriever": 34.2, "rr": 58.8, "pr-rr": 60.4}
GRANULARITY_R5 = {"rag-turn": 47.0, "rag-session": 69.0, "rag-mixed": 38.0, "pr": 78.0, "best-of": 86.0}
PRETRAINED_R5 = {"pretrained-turn": 48.0, "pretrained-session": 77.0, "pretrained-mixed": 49.0, "pr-pretrained": 85.0}
K_AND_M = {"R@5, K = 20": 60.4, "R@10, K = 50": 67.2}  # Contriever
CITATIONS = {  # table 3: precision, recall, F1
    "useful": (89.4, 91.1, 90.2),
    "not useful": (87.2, 84.6, 85.9),
    "overall": (87.6, 85.8, 86.7),
}
CITED_SHARE = {0: 0.20, 200: 0.255, 500: 0.31, 800: 0.40, 1000: 0.42}  # figure 6, read off it
MSC = {  # METEOR, BERTScore; Contriever, Gemini-1.5-Flash
    "no-history": (5.2, 10.6),
    "long-context": (14.8, 31.9),
    "rag-turn": (24.8, 50.8),
    "memorybank": (20.1, 40.3),
    "ld-agent": (25.4, 51.5),
    "pr": (28.6, 53.3),
    "rr": (27.5, 52.2),
    "rmm": (30.8, 55.4),
}
MSC_JUDGE = {"long-context": 25.4, "rmm": 69.7}  # share of Yes, Flash
KAPPA = {"between people": 0.82, "judge and person one": 0.71, "judge and person two": 0.69}
