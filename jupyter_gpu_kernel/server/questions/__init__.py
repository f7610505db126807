"""What the user is asked in a page.

prompts: the questions that wait; prompt_handlers: their HTTP API; sign_in: signs in to a kernelspec's node;
sign_in_requests: kernels of other front ends that wait for that.
"""
