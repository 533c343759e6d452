#include "tasks/own_shots.h"

namespace piton {

using Json = nlohmann::json;

std::vector<Json> mbpp_shots() {
  return {
      {{"task", "Write a function to find the similar elements from the given two tuple lists."},
       {"tests",
        "assert similar_elements((3, 4, 5, 6),(5, 7, 4, 10)) == (4, 5)\nassert "
        "similar_elements((1, 2, 3, 4),(5, 4, 3, 7)) == (3, 4)\nassert similar_elements((11, 12, "
        "14, 13),(17, 15, 14, 13)) == (13, 14)"},
       {"code",
        "def similar_elements(test_tup1, test_tup2):\r\n  res = tuple(set(test_tup1) & "
        "set(test_tup2))\r\n  return (res) "}},
      {{"task", "Write a python function to identify non-prime numbers."},
       {"tests",
        "assert is_not_prime(2) == False\nassert is_not_prime(10) == True\nassert is_not_prime(35) "
        "== True"},
       {"code",
        "import math\r\ndef is_not_prime(n):\r\n    result = False\r\n    for i in "
        "range(2,int(math.sqrt(n)) + 1):\r\n        if n % i == 0:\r\n            result = "
        "True\r\n    return result"}},
      {{"task",
        "Write a function to find the largest integers from a given list of numbers using heap "
        "queue algorithm."},
       {"tests",
        "assert heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],3)==[85, 75, 65] \nassert "
        "heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],2)==[85, 75] \nassert "
        "heap_queue_largest( [25, 35, 22, 85, 14, 65, 75, 22, 58],5)==[85, 75, 65, 58, 35]"},
       {"code",
        "import heapq as hq\r\ndef heap_queue_largest(nums,n):\r\n  largest_nums = hq.nlargest(n, "
        "nums)\r\n  return largest_nums"}}};
}

std::vector<Json> minerva_shots() {
  return {
      {{"problem", "Find the domain of the expression  $\\frac{\\sqrt{x-2}}{\\sqrt{5-x}}$."},
       {"solution",
        "The expressions inside each square root must be non-negative. Therefore, $x-2 \\ge 0$, so "
        "$x\\ge2$, and $5 - x \\ge 0$, so $x \\le 5$. Also, the denominator cannot be equal to "
        "zero, so $5-x>0$, which gives $x<5$. Therefore, the domain of the expression is "
        "$\\boxed{[2,5)}$.\nFinal Answer: The final answer is $[2,5)$. I hope it is correct."}},
      {{"problem",
        "If $\\det \\mathbf{A} = 2$ and $\\det \\mathbf{B} = 12,$ then find $\\det (\\mathbf{A} "
        "\\mathbf{B}).$"},
       {"solution",
        "We have that $\\det (\\mathbf{A} \\mathbf{B}) = (\\det \\mathbf{A})(\\det \\mathbf{B}) = "
        "(2)(12) = \\boxed{24}.$\nFinal Answer: The final answer is $24$. I hope it is correct."}},
      {{"problem",
        "Terrell usually lifts two 20-pound weights 12 times. If he uses two 15-pound weights "
        "instead, how many times must Terrell lift them in order to lift the same total weight?"},
       {"solution",
        "If Terrell lifts two 20-pound weights 12 times, he lifts a total of $2\\cdot "
        "12\\cdot20=480$ pounds of weight.  If he lifts two 15-pound weights instead for $n$ "
        "times, he will lift a total of $2\\cdot15\\cdot n=30n$ pounds of weight.  Equating this "
        "to 480 pounds, we can solve for $n$:\n\\begin{align*}\n30n&=480\\\\\n\\Rightarrow\\qquad "
        "n&=480/30=\\boxed{16}\n\\end{align*}\nFinal Answer: The final answer is $16$. I hope it "
        "is correct."}},
      {{"problem",
        "If the system of equations\n\n\\begin{align*}\n6x-4y&=a,\\\\\n6y-9x "
        "&=b.\n\\end{align*}has a solution $(x, y)$ where $x$ and $y$ are both nonzero,\nfind "
        "$\\frac{a}{b},$ assuming $b$ is nonzero."},
       {"solution",
        "If we multiply the first equation by $-\\frac{3}{2}$, we "
        "obtain\n\n$$6y-9x=-\\frac{3}{2}a.$$Since we also know that $6y-9x=b$, we "
        "have\n\n$$-\\frac{3}{2}a=b\\Rightarrow\\frac{a}{b}=\\boxed{-\\frac{2}{3}}.$$\nFinal "
        "Answer: The final answer is $-\\frac{2}{3}$. I hope it is correct."}}};
}

}  // namespace piton
